/*
 * group.c: a group, whatever it remembers: made, asked, told.
 *
 * Most operations are the same for all kinds, because all are run lists over counted cells; where a
 * recurrent group differs, it is asked here and answers in group_recurrent.c. Copying between pools is
 * here too: it is the one operation on sequences that copies rows.
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

/* ---- copy between pools ---------------------------------------------------------------------- */

static uint32_t pool_of(const cl_group *group, cellar_seq seq)
{
    return cl_pool_rule_apply(&group->sequences.rule, seq);
}

static bool is_far(const cl_group *group, cellar_seq from, cellar_seq to)
{
    return pool_of(group, from) != pool_of(group, to);
}

/* Cells of a list that lie in a range. */
static uint64_t count_cells(const cl_runs *runs, cl_range range)
{
    uint32_t first, last;
    uint64_t n = 0;
    cl_sequences_find_range(runs, range, &first, &last);
    for (uint32_t i = first; i < last; i++) {
        cl_run clipped;
        if (cl_run_clip(&runs->items[i], range.p0, range.p1, &clipped)) n += clipped.len;
    }
    return n;
}

/* Note a move for the engine; room was reserved. */
static void note_move(cl_group *group, uint32_t from, uint32_t to, uint32_t n)
{
    group->moves->items[group->moves->n++] = (cellar_move){group->index, from, to, n, 0};
}

/*
 * The cells of [range) of a sequence, one piece for each run and stretch: fill(context, ...) for each.
 * A piece is n cells from `run.cell` on that go to `to`.
 */
typedef struct piece {
    cl_run run; /* clipped to the piece */
    uint32_t to;
} piece;

typedef struct piece_walk {
    const cl_group *group;
    const cl_runs *runs;
    cl_range range;
    uint32_t run, last, done;     /* run being cut, cells of it that are done */
    uint32_t stretch, in_stretch; /* stretch being filled, cells of it that are */
} piece_walk;

static piece_walk start_walk(const cl_group *group, const cl_runs *runs, cl_range range)
{
    piece_walk walk = {.group = group, .runs = runs, .range = range};
    cl_sequences_find_range(runs, range, &walk.run, &walk.last);
    return walk;
}

static bool next_piece(piece_walk *walk, piece *out)
{
    if (walk->run >= walk->last) return false;
    cl_run run;
    (void)cl_run_clip(&walk->runs->items[walk->run], walk->range.p0, walk->range.p1, &run);
    const cl_stretch *stretch = &walk->group->copy_stretches[walk->stretch];
    uint32_t n = run.len - walk->done, room = stretch->len - walk->in_stretch;
    if (room < n) n = room;
    out->to = stretch->cell + walk->in_stretch;
    out->run = run;
    out->run.cell += walk->done;
    if (run.step) out->run.pos += (int32_t)walk->done;
    cl_run_set_len(&out->run, n);
    if (n == 1) out->run.step = 1;
    walk->done += n;
    walk->in_stretch += n;
    if (walk->done == run.len) {
        walk->done = 0;
        walk->run++;
    }
    if (walk->in_stretch == stretch->len) {
        walk->in_stretch = 0;
        walk->stretch++;
    }
    return true;
}

/* Choose cells in the other pool and copy the rows into them; nobody holds them yet. */
static cellar_status copy_rows(cl_group *group, const cl_runs *source, cl_range range,
                               cellar_error *error)
{
    piece_walk walk = start_walk(group, source, range);
    piece its;
    while (next_piece(&walk, &its))
        if (!group->is_external &&
            !cl_storage_copy(&group->storage, its.to, its.run.cell, its.run.len))
            CL_FAIL(error, CELLAR_IO, its.to, "a store could not copy rows");
    return CELLAR_OK;
}

static cellar_status reserve_far(cl_group *group, uint32_t slot, uint64_t n, uint64_t n_runs,
                                 cellar_error *error)
{
    cl_alloc *alloc = group->sequences.alloc;
    void *stretches = group->copy_stretches;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_STEP, &stretches, &group->copy_capacity, n,
                               sizeof(cl_stretch));
    group->copy_stretches = stretches;
    if (!ok) return cl_error_no_memory(error, "a copy", (size_t)n * sizeof(cl_stretch));
    CL_TRY(cl_sequences_reserve(&group->sequences, slot, n_runs + n + 3, error));
    if (!group->is_external) return CELLAR_OK;
    void *moves = group->moves->items;
    group->moves->n_promised += n_runs + n;
    ok = cl_alloc_reserve(alloc, CELLAR_BYTES_STEP, &moves, &group->moves->capacity,
                          group->moves->n + group->moves->n_promised, sizeof(cellar_move));
    group->moves->items = moves;
    return ok ? CELLAR_OK : cl_error_no_memory(error, "row moves", (size_t)n * sizeof(cellar_move));
}

/* Reserve everything for a copy to another pool, rows included. */
static cellar_status prepare_far(cl_group *group, cellar_seq from, cellar_seq to, cl_range range,
                                 cellar_error *error)
{
    cl_cells *cells = &group->sequences.cells;
    const cl_runs *source = cl_group_runs(group, from);
    uint64_t n = count_cells(source, range);
    uint32_t pool = pool_of(group, to), slot;
    group->n_copy_stretches = 0;
    if (n > cells->pools[pool].n_free)
        CL_FAIL(error, CELLAR_FULL, (int64_t)(n - cells->pools[pool].n_free),
                "a copy to pool %u needs %llu cells, %u are free", pool, (unsigned long long)n,
                cells->pools[pool].n_free);
    uint64_t n_lost = lost_by(group, from)->n;
    bool has_lost = cl_lost_any(lost_by(group, from), range.p0, range.p1);
    bool is_there = cl_sequence_table_find(&group->sequences.table, to) != CL_NO_SLOT;
    if (n == 0 && !has_lost && !is_there) return CELLAR_OK;
    CL_TRY(cl_sequences_add(&group->sequences, to, &slot, error));
    source = cl_group_runs(group, from); /* the table may have moved */
    cellar_status status = reserve_far(group, slot, n, source->n, error);
    if (status == CELLAR_OK)
        status = cl_sequences_reserve_lost(&group->sequences, slot, n_lost ? n_lost + 1 : 0, error);
    if (status == CELLAR_OK && n > 0) {
        cl_request request = {slot + 1, pool, CL_NO_CELL, (uint32_t)n};
        group->n_copy_stretches = cl_placement_choose(cells, &request, group->copy_stretches);
        status = copy_rows(group, source, range, error);
    }
    if (status != CELLAR_OK) {
        group->n_copy_stretches = 0;
        cl_sequences_drop_if_empty(&group->sequences, slot);
    }
    return status;
}

/* Take the copied cells and put their runs into the sequence. */
static void copy_far(cl_group *group, cellar_seq from, cellar_seq to, cl_range range)
{
    cl_cells *cells = &group->sequences.cells;
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, to);
    if (slot == CL_NO_SLOT) return;
    cl_sequence *sequence = &group->sequences.table.items[slot];
    const cl_runs *source = cl_group_runs(group, from);
    for (uint32_t s = 0; s < group->n_copy_stretches; s++)
        cl_cells_take(cells, group->copy_stretches[s].cell, group->copy_stretches[s].len, 1);
    cl_sequences_replace(&group->sequences, slot, range, NULL, 0);
    cl_lost_copy(&sequence->lost, lost_by(group, from), range.p0, range.p1);
    uint32_t at = cl_runs_cut(&sequence->runs, range.p0);
    piece_walk walk = start_walk(group, source, range);
    piece its;
    while (next_piece(&walk, &its)) {
        uint32_t n = its.run.len;
        memcpy(cells->stored_pos + its.to, cells->stored_pos + its.run.cell, n * sizeof(int32_t));
        memcpy(cells->token + its.to, cells->token + its.run.cell, n * sizeof(int32_t));
        if (cells->points)
            memcpy(cells->points + its.to, cells->points + its.run.cell, n * sizeof(cl_point));
        if (group->is_external) note_move(group, its.run.cell, its.to, n);
        its.run.cell = its.to;
        cl_runs_insert(&sequence->runs, at, &its.run, 1);
        if (!cl_runs_join(&sequence->runs, at)) at++;
        group->n_moved += n;
    }
    cl_runs_mend(&sequence->runs, at);
    group->n_copy_stretches = 0;
    cl_sequences_drop_if_empty(&group->sequences, slot);
}

cellar_status cl_group_prepare_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range,
                                    cellar_error *error)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        return cl_recurrent_prepare_copy(group, from, to, range, error);
    if (is_far(group, from, to)) return prepare_far(group, from, to, range, error);
    return cl_sequences_prepare_copy(&group->sequences, from, to, range, error);
}

void cl_group_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range)
{
    if (group->kind == CELLAR_LAYER_RECURRENT)
        cl_recurrent_copy(group, from, to, range);
    else if (is_far(group, from, to))
        copy_far(group, from, to, range);
    else
        cl_sequences_copy(&group->sequences, from, to, range);
}

void cl_group_cancel_copy(cl_group *group, cellar_seq to)
{
    group->n_copy_stretches = 0;
    cl_sequences_cancel_copy(&group->sequences, to);
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
