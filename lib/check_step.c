/*
 * check_step.c: who else than sequences holds cells, and what an open step promises to give back.
 *
 * Checkpoints hold what their pins name. A checkpoint that the open step has suspended still holds
 * it, except in the groups that took it: there its runs stand among the victims. The step itself holds
 * one count a reserved cell for each sequence that will have it. In a window group, a batch longer than
 * the room gives up its own first tokens again: those below kept_from are held no more.
 * States that lead from one micro-batch to the next are held by the step alone, the others by its members.
 *
 * Victims are what an abort gives back: each must have been taken from somebody who knows.
 */
#include "check.h"

#include "error.h"

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Has the open step taken what the checkpoint holds in this group? */
static bool is_suspended(const cl_checkpoints *checkpoints, uint32_t checkpoint,
                         const cl_group *group)
{
    return checkpoints->suspended[checkpoint] >> group->index & 1;
}

/* The pool of the cells that a pin holds: all must be of one. */
static uint32_t pool_of_pin(const cl_cells *cells, const cl_pin *pin)
{
    uint32_t cell = pin->runs.n > 0 ? pin->runs.items[0].cell : 0;
    return cell < cells->n ? cells->pool_of[cell / CL_BLOCK] : 0;
}

static cellar_status count_pins(const cl_checkpoints *checkpoints, const cl_group *group,
                                uint32_t *counted, cellar_error *error)
{
    for (uint32_t i = 0; i < checkpoints->n; i++) {
        if (!checkpoints->is_live[i] || is_suspended(checkpoints, i, group)) continue;
        const cl_pin *pin = cl_checkpoints_pin(checkpoints, i, group->index);
        uint32_t pool = pool_of_pin(&group->sequences.cells, pin);
        for (uint32_t r = 0; r < pin->runs.n; r++)
            CL_TRY(cl_check_run(&group->sequences.cells, &pin->runs.items[r], pool, "checkpoint", i,
                                counted, error));
    }
    return CELLAR_OK;
}

cellar_status cl_check_checkpoints(const cellar_memory *memory, cellar_error *error)
{
    const cl_checkpoints *checkpoints = &memory->checkpoints;
    const uint32_t *refs = checkpoints->sequences.cells.refs;
    for (uint32_t i = 0; i < checkpoints->n; i++) {
        if (checkpoints->is_live[i] && refs[i] == 0)
            CL_FAIL(error, CELLAR_CORRUPT, i, "checkpoint %u is filled in, but nobody has it", i);
        if (checkpoints->suspended[i] && (!checkpoints->is_live[i] || !memory->step.is_open))
            CL_FAIL(error, CELLAR_CORRUPT, i, "checkpoint %u is suspended by no step", i);
        for (uint32_t g = 0; g < memory->n_groups; g++) {
            const cl_pin *pin = cl_checkpoints_pin(checkpoints, i, g);
            if (!checkpoints->is_live[i] && pin->runs.n > 0)
                CL_FAIL(error, CELLAR_CORRUPT, i,
                        "checkpoint %u does not exist, but names %u runs of group %u", i,
                        pin->runs.n, g);
        }
    }
    return CELLAR_OK;
}

/* ---- what the step holds --------------------------------------------------------------------- */

/* Is a token of this member at this position still held, or given up by its own step? */
static bool is_kept(const cl_group *group, uint32_t member, int64_t pos)
{
    return pos >= group->participants[member].kept_from ||
           (cl_group_has_window(group) && pos < (int64_t)group->window.n_sinks);
}

static cellar_status count_tokens(const cl_step *step, const cl_group *group, uint32_t *counted,
                                  cellar_error *error)
{
    const cl_cells *cells = &group->sequences.cells;
    for (uint32_t i = 0; i < step->n_tokens; i++) {
        uint32_t cell = group->cells_of[i];
        if (cell >= cells->n)
            CL_FAIL(error, CELLAR_CORRUPT, i, "token %u of the step has cell %u of %u", i, cell,
                    cells->n);
        for (uint32_t k = step->member_begin[i]; k < step->member_begin[i + 1]; k++) {
            uint32_t member = step->member_of[k];
            if (!is_kept(group, member, step->positions[i])) continue;
            counted[cell]++;
            if (cells->stored_pos[cell] != step->positions[i])
                CL_FAIL(error, CELLAR_CORRUPT, i,
                        "token %u of the step at %d has cell %u, which is stored for %d", i,
                        (int)step->positions[i], cell, (int)cells->stored_pos[cell]);
            if (cells->pool_of[cell / CL_BLOCK] !=
                group->sequences.table.items[group->participants[member].slot].pool)
                CL_FAIL(error, CELLAR_CORRUPT, i,
                        "token %u of the step has cell %u of another pool", i, cell);
        }
    }
    return CELLAR_OK;
}

/* States that a commit gives to the sequences, and those that only lead on inside the step. */
static cellar_status count_states(const cl_group *group, uint32_t *counted, cellar_error *error)
{
    const cl_cells *cells = &group->sequences.cells;
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_participant *its = &group->participants[m];
        for (uint32_t r = 0; r < its->pending.n; r++)
            CL_TRY(cl_check_run(cells, &its->pending.items[r], 0, "member", m, counted, error));
    }
    for (uint32_t i = 0; i < group->n_transits; i++) {
        if (group->transits[i] >= cells->n)
            CL_FAIL(error, CELLAR_CORRUPT, i, "transit %u of the step is state %u of %u", i,
                    group->transits[i], cells->n);
        counted[group->transits[i]]++;
    }
    return CELLAR_OK;
}

/* Whatever a step writes must be its own: read and forked by nobody before the commit. */
static cellar_status check_targets(const cl_group *group, const uint32_t *counted,
                                   cellar_error *error)
{
    const cl_cells *cells = &group->sequences.cells;
    for (uint32_t i = 0; i < group->n_targets; i++)
        if (group->targets[i] >= cells->n || counted[group->targets[i]] > 0)
            CL_FAIL(error, CELLAR_CORRUPT, i,
                    "target %u of the step is state %u, which somebody else holds", i,
                    group->targets[i]);
    return CELLAR_OK;
}

cellar_status cl_check_count_others(const cellar_memory *memory, const cl_group *group,
                                    uint32_t *counted, cellar_error *error)
{
    CL_TRY(count_pins(&memory->checkpoints, group, counted, error));
    if (!memory->step.is_open) return CELLAR_OK;
    if (group->kind != CELLAR_LAYER_RECURRENT)
        return count_tokens(&memory->step, group, counted, error);
    CL_TRY(check_targets(group, counted, error));
    return count_states(group, counted, error);
}

/* ---- what the step has noted ----------------------------------------------------------------- */

static cellar_status check_participants(const cl_step *step, const cl_group *group,
                                        cellar_error *error)
{
    const cl_sequence_table *table = &group->sequences.table;
    if (group->n_participants != step->n_members)
        CL_FAIL(error, CELLAR_CORRUPT, group->index,
                "group %u has %u sequences in the step, which has %u", group->index,
                group->n_participants, step->n_members);
    for (uint32_t m = 0; m < step->n_members; m++) {
        const cl_participant *its = &group->participants[m];
        if (its->slot >= table->n_slots || table->items[its->slot].id != step->members[m].id)
            CL_FAIL(error, CELLAR_CORRUPT, m, "sequence %d of the step has a slot of another",
                    (int)step->members[m].id);
        if (its->is_new && table->items[its->slot].runs.n > 0)
            CL_FAIL(error, CELLAR_CORRUPT, m,
                    "sequence %d was made by the step, but holds something already",
                    (int)step->members[m].id);
        if (its->kept_from > 0 && !cl_group_has_window(group))
            CL_FAIL(error, CELLAR_CORRUPT, m,
                    "sequence %d gives up tokens of its step without a window",
                    (int)step->members[m].id);
    }
    return CELLAR_OK;
}

/* What was taken from a sequence counts as lost. */
static cellar_status check_sequence_victim(const cl_group *group, const cl_victim *victim,
                                           cellar_error *error)
{
    const cl_sequence_table *table = &group->sequences.table;
    if (victim->slot >= table->n_slots || table->items[victim->slot].id < 0)
        CL_FAIL(error, CELLAR_CORRUPT, victim->run.pos,
                "cells %u + %u of group %u were taken from no sequence", victim->run.cell,
                victim->run.len, group->index);
    const cl_sequence *sequence = &table->items[victim->slot];
    for (int64_t pos = victim->run.pos; pos <= cl_run_last(&victim->run); pos++)
        if (!cl_lost_any(&sequence->lost, pos, pos + 1))
            CL_FAIL(error, CELLAR_CORRUPT, pos,
                    "position %lld was taken from sequence %d, which does not count it as lost",
                    (long long)pos, (int)sequence->id);
    return CELLAR_OK;
}

static cellar_status check_victims(const cl_checkpoints *checkpoints, const cl_group *group,
                                   cellar_error *error)
{
    for (uint32_t i = 0; i < group->n_victims; i++) {
        const cl_victim *victim = &group->victims[i];
        if (!victim->is_checkpoint)
            CL_TRY(check_sequence_victim(group, victim, error));
        else if (victim->slot >= checkpoints->n || !is_suspended(checkpoints, victim->slot, group))
            CL_FAIL(error, CELLAR_CORRUPT, i,
                    "group %u took cells %u + %u from checkpoint %u, which is not suspended",
                    group->index, victim->run.cell, victim->run.len, victim->slot);
    }
    return CELLAR_OK;
}

cellar_status cl_check_step(const cellar_memory *memory, const cl_group *group, cellar_error *error)
{
    if (memory->step.is_open) {
        CL_TRY(check_participants(&memory->step, group, error));
        return check_victims(&memory->checkpoints, group, error);
    }
    if (group->n_participants > 0 || group->n_victims > 0)
        CL_FAIL(error, CELLAR_CORRUPT, group->index,
                "group %u remembers %u sequences and %u victims of a step that is over",
                group->index, group->n_participants, group->n_victims);
    return CELLAR_OK;
}
