/*
 * session_commit.c: what was loaded takes its place.
 *
 * Preparing tells every list in cells of the memory and makes sequences that are not there yet (empty
 * ones; they go again if the load fails). Putting in place cannot fail: each new list's cells are counted,
 * the old list's are let go of, and the two are exchanged. The order matters only for what is shared:
 * new holders first, so nothing that both hold is free in between.
 *
 * Checkpoints are held by lists over their slots, so these are exchanged like any other.
 */
#include "session_load.h"

#include "error.h"

/* The sequences of group g, or (g == n_groups) those that hold checkpoints. */
static cl_sequences *sequences_of(const cl_load *load, uint32_t g)
{
    return g < load->n_groups ? &load->memory->groups[g].sequences
                              : &load->memory->checkpoints.sequences;
}

static bool has_checkpoints(const cl_load *load)
{
    return load->memory->checkpoints.n > 0;
}

/* ---- prepare --------------------------------------------------------------------------------- */

static bool tell_marks(cl_load *load, const cl_arrival *arrival)
{
    cl_runs *list = &arrival->lists[load->n_groups];
    const cl_saved_sequence *from = arrival->from;
    if (!cl_runs_reserve(list, load->alloc, from->n_marks + 3ull)) return false; /* and for cuts */
    for (uint32_t m = 0; m < from->n_marks; m++) {
        uint32_t checkpoint = from->marks[m].checkpoint;
        uint32_t slot = cl_load_checkpoint(load, arrival->part, checkpoint)->slot;
        if (slot == CL_NO_CHECKPOINT) continue;
        int32_t pos = from->marks[m].position - 1;
        cl_runs_append(list, (cl_run){.pos = pos,
                                      .cell = slot,
                                      .len = 1,
                                      .step = 1,
                                      .shift = from->marks[m].position -
                                               load->session->checkpoints[checkpoint].position});
    }
    return true;
}

/* ---- what is lost ----------------------------------------------------------------------------- */

/* The list of a group that keeps everything: all positions of the sequence. NULL: there is no such group. */
static const cl_saved_list *find_whole(const cl_load *load, const cl_arrival *arrival)
{
    for (uint32_t g = 0; g < load->n_groups; g++) {
        const cl_group *group = &load->memory->groups[g];
        if (group->kind == CELLAR_LAYER_ATTENTION && !cl_group_has_window(group))
            return &arrival->from->lists[g];
    }
    return NULL;
}

/*
 * The file says up to where a list has lost something; what that was are the positions below that are held
 * by a group which keeps everything, or (with windows alone) all below, and that the list does not hold.
 * What is not wanted of the list is lost, too. False: no memory.
 */
static bool tell_lost(const cl_load *load, const cl_arrival *arrival, uint32_t g)
{
    const cl_saved_list *list = &arrival->from->lists[g], *whole = find_whole(load, arrival);
    cl_wanted_part wanted = cl_load_wanted(load, arrival, g);
    cl_runs *lost = &arrival->lost[g];
    cl_run part;
    uint64_t room = 2ull * list->n_runs + (whole ? whole->n_runs : 1) + 4;
    if (list->lost == 0 && wanted.from <= (int64_t)wanted.n_sinks) return true;
    if (!cl_runs_reserve(lost, load->alloc, room)) return false;
    for (uint32_t i = 0; whole && i < whole->n_runs; i++)
        if (cl_run_clip(&whole->runs[i], 0, list->lost, &part))
            cl_lost_add(lost, part.pos, cl_run_last(&part) + 1LL);
    int64_t n_sinks = load->memory->groups[g].window.n_sinks;
    if (!whole) cl_lost_add(lost, list->has_gaps ? 0 : n_sinks, list->lost);
    for (uint32_t i = 0; i < list->n_runs; i++)
        cl_lost_remove(lost, list->runs[i].pos, cl_run_last(&list->runs[i]) + 1LL);
    /* The last one is lost, though another token of its position be held. */
    if (list->lost > 0) cl_lost_add(lost, list->lost - 1, list->lost);
    for (uint32_t i = 0; i < list->n_runs; i++)
        if (cl_run_clip(&list->runs[i], wanted.n_sinks, wanted.from, &part))
            cl_lost_add(lost, part.pos, cl_run_last(&part) + 1LL);
    return true;
}

static cellar_status prepare_arrival(cl_load *load, cl_arrival *arrival, cellar_error *error)
{
    for (uint32_t g = 0; g < load->n_groups; g++) {
        cl_wanted_part wanted = cl_load_wanted(load, arrival, g);
        const cl_landing *landing = &load->landings[cl_load_landing(load, g, arrival->part)];
        if (!cl_landing_tell(landing, &arrival->from->lists[g], &wanted, &arrival->lists[g],
                             load->alloc))
            return cl_error_no_memory(error, "the runs of a session", sizeof(cl_run));
        if (cl_group_has_window(&load->memory->groups[g]) && !tell_lost(load, arrival, g))
            return cl_error_no_memory(error, "what a session has lost", sizeof(cl_run));
    }
    if (has_checkpoints(load) && !tell_marks(load, arrival))
        return cl_error_no_memory(error, "the checkpoints of a session", sizeof(cl_run));
    for (uint32_t g = 0; g < load->n_groups + has_checkpoints(load); g++)
        CL_TRY(cl_sequences_add(sequences_of(load, g), arrival->as, &arrival->slots[g], error));
    return CELLAR_OK;
}

static cellar_status prepare_checkpoint(cl_load *load, uint32_t part, uint32_t c,
                                        cellar_error *error)
{
    static const cl_wanted_part all;
    const cl_arriving_checkpoint *checkpoint = cl_load_checkpoint(load, part, c);
    if (checkpoint->slot == CL_NO_CHECKPOINT) return CELLAR_OK;
    for (uint32_t g = 0; g < load->n_groups; g++)
        if (!cl_landing_tell(&load->landings[cl_load_landing(load, g, part)],
                             &load->session->checkpoints[c].lists[g], &all, &checkpoint->lists[g],
                             load->alloc))
            return cl_error_no_memory(error, "the checkpoints of a session", sizeof(cl_run));
    return CELLAR_OK;
}

static void drop_empty(const cl_load *load)
{
    for (uint32_t i = 0; i < load->n_arrivals; i++)
        for (uint32_t g = 0; g < load->n_groups + has_checkpoints(load); g++) {
            uint32_t slot = load->arrivals[i].slots[g];
            if (slot != CL_NO_SLOT) cl_sequences_drop_if_empty(sequences_of(load, g), slot);
        }
}

cellar_status cl_load_prepare(cl_load *load, cellar_error *error)
{
    for (uint32_t p = 0; p < load->n_parts; p++)
        for (uint32_t c = 0; c < load->session->n_checkpoints; c++)
            CL_TRY(prepare_checkpoint(load, p, c, error));
    for (uint32_t i = 0; i < load->n_arrivals; i++)
        CL_TRY(prepare_arrival(load, &load->arrivals[i], error));
    return CELLAR_OK;
}

void cl_load_abandon(cl_load *load)
{
    drop_empty(load);
}

/* ---- put in place ---------------------------------------------------------------------------- */

/* Exchange a sequence's list for the prepared one, which then has the old one (to be freed). */
static void exchange(cl_load *load, const cl_arrival *arrival, uint32_t g)
{
    cl_sequences *sequences = sequences_of(load, g);
    cl_sequence *sequence = &sequences->table.items[arrival->slots[g]];
    cl_runs *prepared = &arrival->lists[g], old = sequence->runs;
    cl_sequences_hold_runs(sequences, prepared->items, prepared->n);
    cl_sequences_release_runs(sequences, old.items, old.n);
    sequence->runs = *prepared;
    *prepared = old;
    cl_sequences_set_claim(sequences, arrival->slots[g], CL_NO_BLOCK);
    if (g == load->n_groups) return;
    old = sequence->lost;
    sequence->lost = arrival->lost[g];
    arrival->lost[g] = old;
    bool is_state = load->memory->groups[g].kind == CELLAR_LAYER_RECURRENT;
    sequence->begin = is_state ? arrival->from->lists[g].lost : 0;
}

static void put_checkpoint(cl_load *load, const cl_arriving_checkpoint *checkpoint)
{
    cl_checkpoints *checkpoints = &load->memory->checkpoints;
    for (uint32_t g = 0; g < load->n_groups; g++) {
        cl_pin *pin = cl_checkpoints_pin_of(checkpoints, checkpoint->slot, g);
        cl_runs old = pin->runs;
        pin->runs = checkpoint->lists[g];
        checkpoint->lists[g] = old;
        cl_sequences_hold_runs(&load->memory->groups[g].sequences, pin->runs.items, pin->runs.n);
    }
    checkpoints->is_live[checkpoint->slot] = true;
    checkpoints->suspended[checkpoint->slot] = 0;
}

void cl_load_commit(cl_load *load)
{
    cl_checkpoints *checkpoints = &load->memory->checkpoints;
    for (uint32_t i = 0; i < load->n_arrivals; i++)
        for (uint32_t g = 0; g < load->n_groups + has_checkpoints(load); g++)
            exchange(load, &load->arrivals[i], g);
    for (uint32_t p = 0; p < load->n_parts; p++)
        for (uint32_t c = 0; c < load->session->n_checkpoints; c++) {
            const cl_arriving_checkpoint *checkpoint = cl_load_checkpoint(load, p, c);
            if (checkpoint->slot == CL_NO_CHECKPOINT) continue;
            put_checkpoint(load, checkpoint);
            cl_cells_release(&checkpoints->sequences.cells, checkpoint->slot, 1);
        }
    for (uint32_t i = 0; i < load->n_groups * load->n_parts; i++)
        cl_landing_release(&load->landings[i]);
    for (uint32_t g = 0; g < load->n_groups; g++)
        cl_window_keep_given_up(&load->memory->groups[g]);
    drop_empty(load);
    cl_checkpoints_collect(checkpoints);
    checkpoints->n_dropped += load->n_left_out;
}
