/*
 * checkpoints_step.c: the checkpoints that a step makes, and those that it costs.
 *
 * When a step begins, the places are chosen after which one is wanted, and room is reserved for what they
 * will hold; when it is committed they are filled in, if their groups still have what that takes. Those
 * that a group took cells from (suspended ones) are forgotten at the end of the step, unless an abort
 * could give the cells back. Making them is never a reason for a step to fail, but for want of memory.
 */
#include <string.h>

#include "checkpoints.h"
#include "error.h"

/* ---- planning ----------------------------------------------------------------------------------- */

/* Should there be a checkpoint after a token, by the caller's wish or the interval? */
static bool is_wanted(const cl_checkpoints *checkpoints, const cl_step *step, uint32_t token)
{
    if (step->checkpoints && step->checkpoints[token]) return true;
    return checkpoints->interval > 0 &&
           ((int64_t)step->positions[token] + 1) % checkpoints->interval == 0;
}

void cl_checkpoints_begin(cl_checkpoints *checkpoints, const cl_step *step)
{
    checkpoints->n_planned = 0;
    /* The last ones of the step matter most: no more than there are slots. */
    for (uint32_t i = step->n_tokens; i-- > 0 && checkpoints->n_planned < checkpoints->n;)
        if (is_wanted(checkpoints, step, i)) checkpoints->planned[checkpoints->n_planned++] = i;
}

bool cl_checkpoints_is_planned(const cl_checkpoints *checkpoints, uint32_t token)
{
    /* Planned from the back: tokens fall. */
    uint32_t low = 0, high = checkpoints->n_planned;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (checkpoints->planned[middle] > token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < checkpoints->n_planned && checkpoints->planned[low] == token;
}

void cl_checkpoints_cancel_planned(cl_checkpoints *checkpoints, uint32_t token)
{
    for (uint32_t i = 0; i < checkpoints->n_planned; i++) {
        if (checkpoints->planned[i] != token) continue;
        memmove(checkpoints->planned + i, checkpoints->planned + i + 1,
                (checkpoints->n_planned - i - 1) * sizeof *checkpoints->planned);
        checkpoints->n_planned--;
        return;
    }
}

static cl_runs *planned_list(const cl_checkpoints *checkpoints, uint32_t i, uint32_t group)
{
    return &checkpoints->planned_lists[(size_t)i * checkpoints->n_groups + group];
}

static cellar_status reserve_planned(cl_checkpoints *checkpoints, const cl_step *step, uint32_t i,
                                     cellar_error *error)
{
    uint32_t token = checkpoints->planned[i];
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
        CL_TRY(cl_checkpoints_reserve_list(checkpoints, step->members[step->member_of[k]].id,
                                           checkpoints->n_planned, error));
    uint32_t m = step->member_of[step->member_begin[token]];
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        if (!cl_checkpoints_needs_pin(group)) continue;
        uint64_t n = cl_group_runs(group, step->members[m].id)->n +
                     group->participants[m].pending.n + 3ull;
        if (!cl_runs_reserve(planned_list(checkpoints, i, g), group->sequences.alloc, n))
            return cl_error_no_memory(error, "a checkpoint", (size_t)n * sizeof(cl_run));
    }
    return CELLAR_OK;
}

/* Forget lists that reserving made and nothing came into. */
static void drop_empty_lists(cl_checkpoints *checkpoints, const cl_step *step)
{
    for (uint32_t m = 0; checkpoints->n > 0 && m < step->n_members; m++)
        cl_sequences_drop_if_empty(
            &checkpoints->sequences,
            cl_sequence_table_find(&checkpoints->sequences.table, step->members[m].id));
    cl_checkpoints_drop_empty_lists(checkpoints);
}

cellar_status cl_checkpoints_reserve(cl_checkpoints *checkpoints, const cl_step *step,
                                     cellar_error *error)
{
    for (uint32_t i = 0; i < checkpoints->n_planned; i++)
        CL_TRY(reserve_planned(checkpoints, step, i, error));
    return CELLAR_OK;
}

/* ---- the end of the step ------------------------------------------------------------------------ */

/* Could a sequence in this group be cut off at n with nothing missing? */
static bool is_whole(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++)
        if (cl_checkpoints_needs_pin(&checkpoints->groups[g]) &&
            cl_group_continue_at(&checkpoints->groups[g], seq, n) != n)
            return false;
    return true;
}

/* Forget all that the step has taken from. */
static void drop_suspended(cl_checkpoints *checkpoints)
{
    for (uint32_t c = 0; c < checkpoints->n; c++)
        if (checkpoints->is_live[c] && checkpoints->suspended[c] != 0)
            cl_checkpoints_drop_everywhere(checkpoints, c);
}

void cl_checkpoints_drop_suspended(cl_checkpoints *checkpoints)
{
    drop_suspended(checkpoints);
    cl_checkpoints_drop_empty_lists(checkpoints);
}

/* The step's lists have the room that was reserved: give them to the slot. */
static void exchange_lists(cl_checkpoints *checkpoints, uint32_t i, uint32_t checkpoint)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_runs *reserved = planned_list(checkpoints, i, g);
        cl_runs *its = &cl_checkpoints_pin_of(checkpoints, checkpoint, g)->runs;
        cl_runs spare = *its;
        *its = *reserved;
        *reserved = spare;
    }
}

static bool stands_in(const cl_step *step, uint32_t token, uint32_t member)
{
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
        if (step->member_of[k] == member) return true;
    return false;
}

/* Do two sequences of a token part right behind it, at its own position? Then they are not alike up to there. */
static bool part_at(const cl_step *step, uint32_t token, uint32_t a, uint32_t b)
{
    if (a == b || !step->points) return false; /* else no two tokens share a position */
    for (uint32_t i = token + 1; i < step->n_tokens; i++)
        if (step->positions[i] == step->positions[token] &&
            stands_in(step, i, a) != stands_in(step, i, b))
            return true;
    return false;
}

static void make_planned(cl_checkpoints *checkpoints, const cl_step *step, uint32_t i)
{
    uint32_t token = checkpoints->planned[i], begin = step->member_begin[token];
    cellar_pos n = step->positions[token] + 1;
    cellar_seq first = step->members[step->member_of[begin]].id;
    if (!is_whole(checkpoints, first, n) || cl_checkpoints_has_one_at(checkpoints, first, n))
        return;
    bool is_in_use;
    uint32_t checkpoint = cl_checkpoints_choose_slot(checkpoints, &is_in_use);
    if (checkpoint == CL_NO_CHECKPOINT) return;
    if (is_in_use) cl_checkpoints_drop_everywhere(checkpoints, checkpoint);
    cl_checkpoints_take_slot(checkpoints, checkpoint, n);
    exchange_lists(checkpoints, i, checkpoint);
    cl_checkpoints_fill(checkpoints, checkpoint, first, n);
    for (uint32_t k = begin; k < step->member_begin[token + 1]; k++) {
        if (part_at(step, token, step->member_of[begin], step->member_of[k])) continue;
        cl_cells_hold(&checkpoints->sequences.cells, checkpoint, 1);
        if (!cl_checkpoints_add(checkpoints, step->members[step->member_of[k]].id, n, checkpoint))
            cl_cells_release(&checkpoints->sequences.cells, checkpoint, 1);
    }
    cl_cells_release(&checkpoints->sequences.cells, checkpoint, 1); /* the one it was taken with */
    cl_checkpoints_collect(checkpoints);
}

/*
 * A token that shares the last position of its sequence stands before a checkpoint behind that. The lists
 * stay, though they become empty: the planned checkpoints have room in them.
 */
static void forget_overtaken(cl_checkpoints *checkpoints, const cl_step *step)
{
    if (!step->points || checkpoints->n == 0) return; /* else no two tokens share a position */
    for (uint32_t m = 0; m < step->n_members; m++) {
        uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, step->members[m].id);
        if (slot == CL_NO_SLOT) continue;
        /* One behind position p has its entry at p. */
        cl_range range = {step->members[m].first, INT64_MAX};
        cl_sequences_empty(&checkpoints->sequences, slot, range);
    }
    cl_checkpoints_collect(checkpoints);
}

void cl_checkpoints_commit(cl_checkpoints *checkpoints, const cl_step *step)
{
    drop_suspended(checkpoints);
    forget_overtaken(checkpoints, step);
    for (uint32_t i = checkpoints->n_planned; i-- > 0;)
        make_planned(checkpoints, step, i);
    checkpoints->n_planned = 0;
    drop_empty_lists(checkpoints, step);
}

void cl_checkpoints_abort(cl_checkpoints *checkpoints, const cl_step *step)
{
    drop_suspended(checkpoints);
    checkpoints->n_planned = 0;
    drop_empty_lists(checkpoints, step);
}
