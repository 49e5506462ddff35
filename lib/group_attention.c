/*
 * group_attention.c: full attention. Every cell is kept until its sequences let go of it.
 *
 * A step in this group: find the sequences (making those that are new), choose cells for each in
 * one go over the whole batch (so that a long prompt gets a long stretch, whatever the
 * micro-batch), take them, and write down the runs that a commit would append. Everything a commit
 * needs is reserved by then.
 */
#include <assert.h>
#include <string.h>

#include "error.h"
#include "group.h"
#include "placement.h"

bool cl_group_create(cl_group *group, uint32_t n_cells, size_t block_bytes, cl_alloc *alloc)
{
    memset(group, 0, sizeof *group);
    group->sequences.alloc = alloc;
    group->sweep.ubatch = UINT32_MAX;
    cl_sequence_table_init(&group->sequences.table);
    if (!cl_cells_create(&group->sequences.cells, n_cells, alloc)) return false;
    if (cl_storage_create(&group->storage, block_bytes, group->sequences.cells.n_blocks, alloc))
        return true;
    cl_cells_destroy(&group->sequences.cells, alloc);
    return false;
}

void cl_group_destroy(cl_group *group)
{
    cl_alloc *alloc = group->sequences.alloc;
    cl_sweep_free(&group->sweep, alloc);
    cl_arena_free(&group->arena, alloc);
    cl_storage_destroy(&group->storage, alloc);
    cl_sequence_table_free(&group->sequences.table, alloc);
    cl_cells_destroy(&group->sequences.cells, alloc);
}

cellar_pos cl_group_rewind_min(const cl_runs *runs)
{
    /*
     * From 0 nothing is missing; if a beginning was dropped, at least one token has to stand before
     * n.
     */
    if (runs->n == 0 || runs->items[0].pos == 0) return 0;
    return runs->items[0].pos + 1;
}

cellar_pos cl_group_continue_at(const cl_runs *runs, cellar_pos n)
{
    /* Cut off at n, the sequence would go on behind its last position below n. */
    uint32_t i = cl_runs_find(runs, n);
    if (i < runs->n && runs->items[i].pos < n) return n;
    return i > 0 ? cl_run_last(&runs->items[i - 1]) + 1 : 0;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* The arrays of a step; *stretches is needed during begin only. */
static cellar_status carve(cl_group *group, const cl_step *step, cl_stretch **stretches,
                           cl_past **pasts, cellar_error *error)
{
    uint32_t n_tokens = step->n_tokens, n_members = step->n_members;
    uint32_t n_memberships = step->member_begin[n_tokens];
    cl_arena *arena = &group->arena;
    size_t total = 0;
    bool fits = cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(cl_participant)) &&
                cl_arena_add(&total, (size_t)n_members + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(cl_run)) &&
                cl_arena_add(&total, n_tokens, sizeof(cl_stretch)) &&
                cl_arena_add(&total, n_members, sizeof(cl_past));
    if (!fits || !cl_arena_reset(arena, group->sequences.alloc, total))
        return cl_error_no_memory(error, "a step", total);
    group->cells_of = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    group->participants = cl_arena_take(arena, n_members, sizeof(cl_participant));
    group->first_tokens = cl_arena_take(arena, (size_t)n_members + 1, sizeof(uint32_t));
    group->by_first = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    cl_run *pending = cl_arena_take(arena, n_memberships, sizeof(cl_run));
    *stretches = cl_arena_take(arena, n_tokens, sizeof(cl_stretch));
    *pasts = cl_arena_take(arena, n_members, sizeof(cl_past));
    for (uint32_t m = 0; m < n_members; m++) {
        uint32_t n = step->members[m].n_tokens;
        group->participants[m] = (cl_participant){.slot = CL_NO_SLOT, .pending = {pending, 0, n}};
        pending += n;
    }
    return CELLAR_OK;
}

/* Sort the tokens by their first member, keeping their order. */
static void sort_by_first(cl_group *group, const cl_step *step)
{
    uint32_t *begin = group->first_tokens;
    memset(begin, 0, ((size_t)step->n_members + 1) * sizeof *begin);
    for (uint32_t i = 0; i < step->n_tokens; i++)
        begin[step->member_of[step->member_begin[i]] + 1]++;
    for (uint32_t m = 0; m < step->n_members; m++)
        begin[m + 1] += begin[m];
    for (uint32_t i = 0; i < step->n_tokens; i++)
        group->by_first[begin[step->member_of[step->member_begin[i]]]++] = i;
    /* Each begin[m] now stands where m ends, which is where m + 1 begins: move them back. */
    for (uint32_t m = step->n_members; m > 0; m--)
        begin[m] = begin[m - 1];
    begin[0] = 0;
}

static cellar_status find_participants(cl_group *group, const cl_step *step, cellar_error *error)
{
    cl_sequences *sequences = &group->sequences;
    for (uint32_t m = 0; m < step->n_members; m++) {
        cl_participant *participant = &group->participants[m];
        cellar_seq id = step->members[m].id;
        participant->is_new = cl_sequence_table_find(&sequences->table, id) == CL_NO_SLOT;
        participant->slot = cl_sequence_table_add(&sequences->table, sequences->alloc, id);
        if (participant->slot == CL_NO_SLOT)
            return cl_error_no_memory(error, "a sequence", sizeof(cl_sequence));
        participant->old_claim = sequences->table.items[participant->slot].claim;
        group->n_participants = m + 1;
    }
    return CELLAR_OK;
}

/* Cells for all tokens whose first member is m. */
static void place(cl_group *group, uint32_t m, cl_stretch *stretches)
{
    cl_cells *cells = &group->sequences.cells;
    uint32_t first = group->first_tokens[m], n = group->first_tokens[m + 1] - first;
    if (n == 0) return;
    uint32_t slot = group->participants[m].slot;
    const cl_runs *runs = &group->sequences.table.items[slot].runs;
    const cl_run *end = runs->n ? &runs->items[runs->n - 1] : NULL;
    cl_request request = {slot + 1, end ? end->cell + end->len - 1 : CL_NO_CELL, n};
    uint32_t n_stretches = cl_placement_choose(cells, &request, stretches);
    for (uint32_t s = 0; s < n_stretches; s++) {
        cl_cells_take(cells, stretches[s].cell, stretches[s].len, 1);
        for (uint32_t i = 0; i < stretches[s].len; i++)
            group->cells_of[group->by_first[first++]] = stretches[s].cell + i;
    }
    uint32_t last = stretches[n_stretches - 1].cell + stretches[n_stretches - 1].len - 1;
    cl_sequences_set_claim(&group->sequences, slot, cl_placement_claim(cells, slot + 1, last));
}

/* What the cells hold, the runs that each sequence gains, a count for each further sequence. */
static void note_pending(cl_group *group, const cl_step *step)
{
    cl_cells *cells = &group->sequences.cells;
    for (uint32_t i = 0; i < step->n_tokens; i++) {
        uint32_t cell = group->cells_of[i];
        cells->stored_pos[cell] = step->positions[i];
        cells->token[cell] = step->tokens[i];
        cl_run run = {.pos = step->positions[i], .cell = cell, .len = 1, .step = 1, .shift = 0};
        for (uint32_t k = step->member_begin[i]; k < step->member_begin[i + 1]; k++) {
            cl_runs_append(&group->participants[step->member_of[k]].pending, run);
            if (k > step->member_begin[i]) cl_cells_hold(cells, cell, 1);
        }
    }
}

static cellar_status reserve_commit(cl_group *group, const cl_step *step, cl_past *pasts,
                                    const cl_rope *ropes, uint32_t n_ropes, cellar_error *error)
{
    cl_sequences *sequences = &group->sequences;
    for (uint32_t m = 0; m < step->n_members; m++)
        CL_TRY(cl_sequences_reserve(sequences, group->participants[m].slot,
                                    group->participants[m].pending.n, error));
    uint32_t n_pasts = 0;
    for (uint32_t m = 0; m < step->n_members; m++) {
        if (group->first_tokens[m] == group->first_tokens[m + 1]) continue;
        const cl_participant *participant = &group->participants[m];
        pasts[n_pasts++] = (cl_past){&sequences->table.items[participant->slot].runs,
                                     &participant->pending};
    }
    return cl_sweep_prepare(&group->sweep, pasts, n_pasts, step->n_ubatch, ropes, n_ropes,
                            sequences->alloc, error);
}

cellar_status cl_group_check_room(const cl_group *group, uint32_t n_tokens, cellar_error *error)
{
    const cl_cells *cells = &group->sequences.cells;
    if (n_tokens <= cells->n_free) return CELLAR_OK;
    CL_FAIL(error, CELLAR_FULL, n_tokens - cells->n_free,
            "%u tokens need %u cells, %u of %u are free: %u missing", n_tokens, n_tokens,
            cells->n_free, cells->n, n_tokens - cells->n_free);
}

cellar_status cl_group_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                             uint32_t n_ropes, cellar_error *error)
{
    cl_cells *cells = &group->sequences.cells;
    cl_stretch *stretches = NULL;
    cl_past *pasts = NULL;
    CL_TRY(carve(group, step, &stretches, &pasts, error));
    group->old_first_free = cells->first_free;
    group->old_first_untouched = cells->first_untouched;
    group->old_first_unclaimed = cells->first_unclaimed;
    group->n_participants = 0;
    for (uint32_t i = 0; i < step->n_tokens; i++)
        group->cells_of[i] = CL_NO_CELL;
    cellar_status status = find_participants(group, step, error);
    if (status == CELLAR_OK) {
        sort_by_first(group, step);
        for (uint32_t m = 0; m < step->n_members; m++)
            place(group, m, stretches);
        note_pending(group, step);
        status = reserve_commit(group, step, pasts, ropes, n_ropes, error);
    }
    if (status != CELLAR_OK) cl_group_abort(group, step);
    return status;
}

/* ---- the end of a step ----------------------------------------------------------------------- */

static void end_step(cl_group *group)
{
    group->n_participants = 0;
    group->sweep.ubatch = UINT32_MAX;
}

void cl_group_commit(cl_group *group)
{
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_participant *participant = &group->participants[m];
        cl_runs *runs = &group->sequences.table.items[participant->slot].runs;
        for (uint32_t i = 0; i < participant->pending.n; i++)
            cl_runs_append(runs, participant->pending.items[i]);
    }
    end_step(group);
}

void cl_group_abort(cl_group *group, const cl_step *step)
{
    cl_sequences *sequences = &group->sequences;
    for (uint32_t i = 0; i < step->n_tokens; i++) {
        uint32_t cell = group->cells_of[i];
        if (cell == CL_NO_CELL) continue;
        while (sequences->cells.refs[cell] > 0)
            cl_cells_release(&sequences->cells, cell, 1);
    }
    /* Backwards, so that claims and slots return the way they came. */
    for (uint32_t m = group->n_participants; m-- > 0;) {
        cl_participant *participant = &group->participants[m];
        cl_sequences_set_claim(sequences, participant->slot, CL_NO_BLOCK);
    }
    for (uint32_t m = group->n_participants; m-- > 0;) {
        cl_participant *participant = &group->participants[m];
        cl_sequences_set_claim(sequences, participant->slot, participant->old_claim);
        if (participant->is_new) cl_sequences_drop_if_empty(sequences, participant->slot);
    }
    sequences->cells.first_free = group->old_first_free;
    sequences->cells.first_untouched = group->old_first_untouched;
    sequences->cells.first_unclaimed = group->old_first_unclaimed;
    end_step(group);
}

/* ---- the sweep of a micro-batch -------------------------------------------------------------- */

void cl_group_sweep(cl_group *group, const cl_step *step, uint32_t ubatch)
{
    if (group->sweep.ubatch == ubatch) return;
    uint32_t begin = cl_step_first(step, ubatch), end = begin + cl_step_count(step, ubatch);
    for (uint32_t m = 0; m < step->n_members; m++)
        group->participants[m].n_visible = 0;
    for (uint32_t k = 0; k < step->member_begin[end]; k++)
        group->participants[step->member_of[k]].n_visible++;

    cl_sweep_begin(&group->sweep, ubatch);
    uint32_t *local = group->sweep.tokens; /* filled behind what the views have taken already */
    for (uint32_t m = 0; m < step->n_members; m++) {
        uint32_t n = 0;
        for (uint32_t i = group->first_tokens[m]; i < group->first_tokens[m + 1]; i++) {
            uint32_t token = group->by_first[i];
            if (token >= begin && token < end) local[group->sweep.n_tokens + n++] = token - begin;
        }
        if (n == 0) continue;
        const cl_participant *participant = &group->participants[m];
        cl_past past = {&group->sequences.table.items[participant->slot].runs,
                        &participant->pending};
        cl_sweep_add_view(&group->sweep, m, &past, participant->n_visible,
                          local + group->sweep.n_tokens, n);
    }
    cl_sweep_finish(&group->sweep);
}
