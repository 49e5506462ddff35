/*
 * group.c: a group, whatever it remembers: made, asked, told.
 *
 * Most operations are the same for all kinds, because all are run lists over counted cells; where a
 * recurrent group differs, it is asked here and answers in group_recurrent.c. Copying is in group_copy.c.
 */
#include "group.h"

#include <string.h>

#include "checkpoints.h"
#include "error.h"

/* ---- life cycle ------------------------------------------------------------------------------ */

cellar_status cl_group_create(cl_group *group, uint32_t index, const cl_group_source *source,
                              cl_alloc *alloc, cellar_error *error)
{
    const cl_group_plan *plan = source->plan;
    bool is_recurrent = plan->kind == CELLAR_LAYER_RECURRENT;
    memset(group, 0, sizeof *group);
    group->kind = plan->kind;
    group->window = plan->window;
    group->is_external = plan->is_external;
    group->index = index;
    group->plan = *plan;
    group->n_rollback = plan->n_rollback;
    group->sequences.alloc = alloc;
    group->sequences.rule = source->rule;
    group->sweep.ubatch = UINT32_MAX;
    group->spared_slot = CL_NO_SLOT;
    cl_sequence_table_init(&group->sequences.table);
    cl_cells *cells = &group->sequences.cells;
    if (!cl_cells_create(cells, source->pools, plan->n_pools,
                         cl_group_cells_kind(plan->kind, source->has_points), alloc))
        return cl_error_no_memory(error, "cells: use fewer", plan->cells_bytes);
    cellar_status status = cl_storage_create(
        &group->storage, &plan->layout, source->rows, plan->n_rows, source->stores,
        source->n_stores, is_recurrent ? plan->n_cells : plan->n_blocks, alloc, error);
    if (status != CELLAR_OK) cl_cells_destroy(cells, alloc);
    return status;
}

void cl_group_destroy(cl_group *group)
{
    cl_alloc *alloc = group->sequences.alloc;
    cl_sweep_free(&group->sweep, alloc);
    cl_arena_free(&group->arena, alloc);
    cl_arena_free(&group->reclaim_arena, alloc);
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, group->victims,
                 group->victim_capacity * sizeof *group->victims);
    cl_alloc_put(alloc, CELLAR_BYTES_STEP, group->copy_stretches,
                 group->copy_capacity * sizeof *group->copy_stretches);
    cl_storage_destroy(&group->storage);
    cl_sequence_table_free(&group->sequences.table, alloc);
    cl_cells_destroy(&group->sequences.cells, alloc);
}

/* ---- questions ------------------------------------------------------------------------------- */

static const cl_runs *lost_by(const cl_group *group, cellar_seq seq)
{
    return cl_sequence_table_lost(&group->sequences.table, seq);
}

/* The largest of positions, y and x of the cells that stand at the run's last position. */
static int64_t last_coordinate(const cl_cells *cells, const cl_run *run)
{
    int64_t pos = cl_run_last(run), largest = pos;
    uint32_t first = run->step ? run->len - 1 : 0;
    for (uint32_t i = first; i < run->len; i++) {
        cl_point point = cells->points[run->cell + i];
        if (pos + point.y > largest) largest = pos + point.y;
        if (pos + point.x > largest) largest = pos + point.x;
    }
    return largest;
}

cellar_pos cl_group_next(const cl_group *group, cellar_seq seq)
{
    const cl_runs *runs = cl_group_runs(group, seq);
    int64_t next = cl_lost_end(lost_by(group, seq));
    if (runs->n == 0) return (cellar_pos)next;
    const cl_cells *cells = &group->sequences.cells;
    int64_t last = cl_run_last(&runs->items[runs->n - 1]), largest = last;
    /* Of tokens that were given up behind what is held only the positions are known; others know more. */
    if (next > last + 1) return (cellar_pos)next;
    for (uint32_t r = runs->n; cells->points && r-- > 0;) {
        const cl_run *run = &runs->items[r];
        if (cl_run_last(run) < last) break;
        int64_t its = last_coordinate(cells, run);
        if (its > largest) largest = its;
    }
    if (largest > INT32_MAX - 1) largest = INT32_MAX - 1;
    return (cellar_pos)(largest + 1 > next ? largest + 1 : next);
}

cellar_pos cl_group_rewind_min(const cl_group *group, cellar_seq seq)
{
    const cl_runs *runs = cl_group_runs(group, seq);
    if (group->kind != CELLAR_LAYER_RECURRENT || runs->n == 0) return 0;
    /* Of the states in a row that end at the present one, the first. */
    uint32_t r = runs->n - 1;
    while (r > 0 && cl_run_last(&runs->items[r - 1]) + 1LL >= runs->items[r].pos)
        r--; /* also if they share a position: those of an image are several there */
    return runs->items[r].pos > 0 ? runs->items[r].pos + 1 : 0;
}

/* The largest place up to n, in a list: behind a position of it; 0: there is none. */
static int64_t find_place(const cl_runs *runs, int64_t n)
{
    uint32_t i = cl_runs_find(runs, n - 1);
    if (i < runs->n && runs->items[i].pos < n) return n;
    return i > 0 ? (int64_t)cl_run_last(&runs->items[i - 1]) + 1 : 0;
}

cellar_pos cl_group_continue_at(const cl_group *group, cellar_seq seq, cellar_pos n)
{
    const cl_runs *runs = cl_group_runs(group, seq), *lost = lost_by(group, seq);
    int64_t at = n, place;
    do {
        int64_t held = find_place(runs, at), gone = find_place(lost, at);
        place = held > gone ? held : gone;
        at = cl_window_go_back(&group->window, lost, place);
    } while (at != place);
    return (cellar_pos)at;
}

cellar_pos cl_group_held_place(const cl_group *group, cellar_seq seq, cellar_pos n)
{
    return (cellar_pos)find_place(cl_group_runs(group, seq), n);
}

bool cl_group_same_past(const cl_group *group, cellar_seq a, cellar_seq b)
{
    return cl_runs_equal(lost_by(group, a), lost_by(group, b)) &&
           cl_runs_equal(cl_group_runs(group, a), cl_group_runs(group, b));
}

/* ---- remove, shift, divide ------------------------------------------------------------------- */

cellar_status cl_group_prepare_remove(cl_group *group, cellar_seq seq, cl_range range,
                                      cellar_error *error)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        CL_TRY(cl_recurrent_prepare_remove(group, seq, range, error));
    return cl_sequences_prepare_remove(&group->sequences, seq, range, error);
}

void cl_group_remove(cl_group *group, cellar_seq seq, cl_range range)
{
    cl_sequences_remove(&group->sequences, seq, range);
}

cellar_status cl_group_prepare_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta,
                                     cellar_error *error)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        CL_TRY(cl_recurrent_prepare_shift(group, seq, range, delta, error));
    return cl_sequences_prepare_shift(&group->sequences, seq, range, delta, error);
}

void cl_group_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        cl_recurrent_shift(group, seq, range, delta);
    else
        cl_sequences_shift(&group->sequences, seq, range, delta);
}

cellar_status cl_group_prepare_divide(cl_group *group, cellar_seq seq, cl_range range,
                                      int64_t divisor, cellar_error *error)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        CL_TRY(cl_recurrent_prepare_divide(group, seq, range, error));
    return cl_sequences_prepare_divide(&group->sequences, seq, range, divisor, error);
}

void cl_group_divide(cl_group *group, cellar_seq seq, cl_range range, int64_t divisor)
{
    cl_sequences_divide(&group->sequences, seq, range, divisor);
}

/* ---- a step ---------------------------------------------------------------------------------- */

cellar_status cl_group_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                             uint32_t n_ropes, cellar_error *error)
{
    if (group->kind == CELLAR_LAYER_RECURRENT) return cl_recurrent_begin(group, step, error);
    return cl_attention_begin(group, step, ropes, n_ropes, error);
}

void cl_group_commit(cl_group *group, const cl_step *step)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        cl_recurrent_commit(group, step);
    else
        cl_attention_commit(group, step);
}

void cl_group_abort(cl_group *group, const cl_step *step)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        cl_recurrent_abort(group, step);
    else
        cl_attention_abort(group, step);
}
