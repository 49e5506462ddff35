/*
 * session_room.c: room for what is loaded.
 *
 * A session can hold more than the memory it comes to has room for: old cells behind a window, more states
 * than are kept here, many checkpoints. What is not needed to go on is left out when there is no room, in
 * the order that cellar_load_session states: first the memory's own cells behind windows go, then the session's
 * are not wanted, then checkpoints, the earliest first. Then it is CELLAR_FULL.
 */
#include "session_load.h"

#include "error.h"

/* ---- what is wanted -------------------------------------------------------------------------- */

static int64_t last_of(const cl_saved_list *list)
{
    return list->n_runs > 0 ? cl_run_last(&list->runs[list->n_runs - 1]) : -1;
}

cl_wanted_part cl_load_wanted(const cl_load *load, const cl_arrival *arrival, uint32_t g)
{
    const cl_group *group = &load->memory->groups[g];
    int64_t last = last_of(&arrival->from->lists[g]);
    bool is_short = load->is_short[cl_load_landing(load, g, arrival->part)];
    cl_wanted_part part = {0, 0};
    if (group->kind == CELLAR_LAYER_RECURRENT) {
        part.from = is_short ? last : last - (int64_t)group->n_rollback;
    } else if (cl_group_has_window(group) && is_short && last >= 0) {
        int64_t next = group->sequences.cells.points ? last : last + 1;
        part.from = cl_window_first(&group->window, next);
        part.n_sinks = group->window.n_sinks;
    }
    if (part.from < 0) part.from = 0;
    return part;
}

static cellar_status collect(cl_load *load, uint32_t g, uint32_t part, cellar_error *error)
{
    static const cl_wanted_part all;
    uint32_t index = cl_load_landing(load, g, part);
    cl_landing *landing = &load->landings[index];
    bool ok = true;
    landing->n_wanted = 0;
    for (uint32_t i = 0; ok && i < load->n_arrivals; i++) {
        const cl_arrival *arrival = &load->arrivals[i];
        cl_wanted_part wanted = cl_load_wanted(load, arrival, g);
        if (cl_load_landing(load, g, arrival->part) == index)
            ok = cl_landing_add(landing, &arrival->from->lists[g], &wanted, load->alloc);
    }
    for (uint32_t p = 0; ok && p < load->n_parts; p++) {
        if (cl_load_landing(load, g, p) != index) continue;
        for (uint32_t c = 0; ok && c < load->session->n_checkpoints; c++)
            if (cl_load_checkpoint(load, p, c)->slot != CL_NO_CHECKPOINT)
                ok = cl_landing_add(landing, &load->session->checkpoints[c].lists[g], &all,
                                    load->alloc);
    }
    cl_landing_sort(landing);
    return ok ? CELLAR_OK : cl_error_no_memory(error, "loading a session", sizeof *landing->wanted);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Once, however many of the sequences have it. */
static void count_left_out(cl_load *load, cl_arriving_checkpoint *checkpoint)
{
    load->n_left_out += !checkpoint->is_left_out;
    checkpoint->is_left_out = true;
}

static void leave_out(cl_load *load, cl_arriving_checkpoint *checkpoint)
{
    cl_cells_release(&load->memory->checkpoints.sequences.cells, checkpoint->slot, 1);
    checkpoint->slot = CL_NO_CHECKPOINT;
    count_left_out(load, checkpoint);
}

/* Slots for the checkpoints of the sequences that arrive in a part, the latest first. */
static void take_slots(cl_load *load, uint32_t part)
{
    cl_checkpoints *checkpoints = &load->memory->checkpoints;
    for (uint32_t i = 0; i < load->n_arrivals; i++) {
        const cl_saved_sequence *from = load->arrivals[i].from;
        if (load->arrivals[i].part != part) continue;
        for (uint32_t m = from->n_marks; m-- > 0;) {
            cl_arriving_checkpoint *checkpoint = cl_load_checkpoint(load, part,
                                                                    from->marks[m].checkpoint);
            if (checkpoint->slot != CL_NO_CHECKPOINT) continue;
            uint32_t slot = checkpoints->n > 0 ? cl_checkpoints_free_slot(checkpoints)
                                               : CL_NO_CHECKPOINT;
            if (slot == CL_NO_CHECKPOINT) {
                count_left_out(load, checkpoint);
                continue;
            }
            cl_checkpoints_take_slot(
                checkpoints, slot, load->session->checkpoints[from->marks[m].checkpoint].position);
            checkpoint->slot = slot;
        }
    }
}

/* The earliest checkpoint that has cells in this landing; NULL: none. */
static cl_arriving_checkpoint *earliest(const cl_load *load, uint32_t g, uint32_t part)
{
    cl_arriving_checkpoint *found = NULL;
    int32_t at = 0;
    for (uint32_t p = 0; p < load->n_parts; p++) {
        if (cl_load_landing(load, g, p) != cl_load_landing(load, g, part)) continue;
        for (uint32_t c = 0; c < load->session->n_checkpoints; c++) {
            const cl_saved_checkpoint *saved = &load->session->checkpoints[c];
            cl_arriving_checkpoint *checkpoint = cl_load_checkpoint(load, p, c);
            if (checkpoint->slot == CL_NO_CHECKPOINT || saved->lists[g].n_runs == 0) continue;
            if (found && saved->position >= at) continue;
            found = checkpoint;
            at = saved->position;
        }
    }
    return found;
}

/* ---- room ------------------------------------------------------------------------------------ */

static uint32_t count_missing(const cl_landing *landing)
{
    uint32_t n_free = landing->group->sequences.cells.pools[landing->pool].n_free;
    return landing->n_cells > n_free ? landing->n_cells - n_free : 0;
}

static cellar_status fail_full(const cl_landing *landing, uint32_t missing, cellar_error *error)
{
    bool is_state = landing->group->kind == CELLAR_LAYER_RECURRENT;
    const cl_pool *pool = &landing->group->sequences.cells.pools[landing->pool];
    CL_FAIL_BECAUSE(error, CELLAR_FULL, is_state ? CELLAR_REASON_NO_STATES : CELLAR_REASON_NO_CELLS,
                    missing, "the session needs %u %s of group %u, %u of %u are free: %u missing",
                    landing->n_cells, is_state ? "states" : "cells", landing->group->index,
                    pool->n_free, pool->n, missing);
}

static cellar_status make_room(cl_load *load, uint32_t g, uint32_t part, cellar_error *error)
{
    uint32_t index = cl_load_landing(load, g, part), missing;
    cl_landing *landing = &load->landings[index];
    CL_TRY(collect(load, g, part, error));
    if (cl_group_has_window(landing->group) && count_missing(landing) > 0) {
        CL_TRY(cl_window_reserve_give_up(landing->group, landing->n_cells, error));
        (void)cl_window_give_up(landing->group, landing->pool, count_missing(landing), CL_NO_SLOT);
        load->has_reclaimed = true;
    }
    if (count_missing(landing) > 0) {
        load->is_short[index] = true;
        CL_TRY(collect(load, g, part, error));
    }
    while ((missing = count_missing(landing)) > 0) {
        cl_arriving_checkpoint *checkpoint = earliest(load, g, part);
        if (!checkpoint) return fail_full(landing, missing, error);
        leave_out(load, checkpoint);
        CL_TRY(collect(load, g, part, error));
    }
    return CELLAR_OK;
}

/* Nothing is taken before everything has room: leaving out a checkpoint frees what it wanted elsewhere. */
cellar_status cl_load_make_room(cl_load *load, cellar_error *error)
{
    for (uint32_t g = 0; g < load->n_groups; g++)
        cl_window_forget_step(&load->memory->groups[g]);
    for (uint32_t p = 0; p < load->n_parts; p++)
        take_slots(load, p);
    for (uint32_t g = 0; g < load->n_groups; g++)
        for (uint32_t p = 0; p < load->n_parts; p++)
            if (cl_load_landing(load, g, p) == g * load->n_parts + p)
                CL_TRY(make_room(load, g, p, error));
    for (uint32_t g = 0; g < load->n_groups; g++)
        for (uint32_t p = 0; p < load->n_parts; p++) {
            uint32_t index = g * load->n_parts + p;
            if (cl_load_landing(load, g, p) != index) continue;
            CL_TRY(collect(load, g, p, error));
            CL_TRY(cl_landing_take(&load->landings[index], load->alloc, error));
        }
    return CELLAR_OK;
}

void cl_load_give_back(cl_load *load)
{
    if (!load->landings) return; /* it did not come so far */
    for (uint32_t i = 0; i < load->n_groups * load->n_parts; i++)
        cl_landing_release(&load->landings[i]);
    for (uint32_t p = 0; p < load->n_parts; p++)
        for (uint32_t c = 0; c < load->session->n_checkpoints; c++)
            if (cl_load_checkpoint(load, p, c)->slot != CL_NO_CHECKPOINT)
                leave_out(load, cl_load_checkpoint(load, p, c));
    for (uint32_t g = 0; g < load->n_groups; g++)
        if (load->is_copying)
            cl_window_keep_given_up(&load->memory->groups[g]);
        else
            cl_window_take_back(&load->memory->groups[g]);
}
