/*
 * group_copy.c: copying what a sequence holds to another, in one group.
 *
 * Within a pool cells are counted once more, and that is all. Between pools it is the one operation on
 * sequences that copies rows: cells are chosen in the other pool, the rows are copied into them while
 * nobody holds them, and then the runs are written down, which cannot fail.
 *
 * A window group makes room for it as a step does, the oldest first: what will be replaced, and no query
 * sees any more; the same of the other sequences in that pool; then what the copy itself would not see, of
 * the two parts that it is made of, which is not copied or given up; then checkpoints. All of it is noted as victims (group_window.c), so
 * that a copy which fails gives everything back, but for what a failing store has written over already.
 */
#include <string.h>

#include "checkpoints.h"
#include "error.h"
#include "group.h"

static const cl_runs *lost_by(const cl_group *group, cellar_seq seq)
{
    return cl_sequence_table_lost(&group->sequences.table, seq);
}

static uint32_t pool_of(const cl_group *group, cellar_seq seq)
{
    return cl_pool_rule_apply(&group->sequences.rule, seq);
}

static bool is_far(const cl_group *group, cellar_seq from, cellar_seq to)
{
    return pool_of(group, from) != pool_of(group, to);
}

/* ---- which part of the range is copied --------------------------------------------------------- */

/* The sinks of a range, and what begins at `kept_from`: the two parts that are copied. */
static void cut_range(const cl_group *group, cl_range range, cl_range out[2])
{
    int64_t n_sinks = group->window.n_sinks, kept_from = group->copy_kept_from;
    out[0] = out[1] = range;
    if (kept_from <= n_sinks) {
        out[1].p0 = out[1].p1 = range.p1; /* all of it is one part */
        return;
    }
    if (out[0].p1 > n_sinks) out[0].p1 = n_sinks;
    if (out[1].p0 < kept_from) out[1].p0 = kept_from;
}

/* Cells of a list that lie in a range. */
static uint64_t count_cells(const cl_runs *runs, cl_range range)
{
    uint32_t first, last;
    uint64_t n = 0;
    if (range.p0 >= range.p1) return 0;
    cl_sequences_find_range(runs, range, &first, &last);
    for (uint32_t i = first; i < last; i++) {
        cl_run clipped;
        if (cl_run_clip(&runs->items[i], range.p0, range.p1, &clipped)) n += clipped.len;
    }
    return n;
}

static uint64_t count_copied(const cl_group *group, const cl_runs *source, cl_range range)
{
    cl_range parts[2];
    cut_range(group, range, parts);
    return count_cells(source, parts[0]) + count_cells(source, parts[1]);
}

/*
 * The cells that are copied, one piece for each run and stretch: n cells from `run.cell` on that go to
 * `to`.
 */
typedef struct piece {
    cl_run run; /* clipped to the piece */
    uint32_t to;
} piece;

typedef struct piece_walk {
    const cl_group *group;
    const cl_runs *runs;
    cl_range parts[2];
    uint32_t part;                /* that is being walked */
    uint32_t run, last, done;     /* run being cut, cells of it that are done */
    uint32_t stretch, in_stretch; /* stretch being filled, cells of it that are */
} piece_walk;

static void enter_part(piece_walk *walk)
{
    const cl_range *part = &walk->parts[walk->part];
    walk->run = walk->last = 0;
    if (part->p0 < part->p1) cl_sequences_find_range(walk->runs, *part, &walk->run, &walk->last);
}

static piece_walk start_walk(const cl_group *group, const cl_runs *runs, cl_range range)
{
    piece_walk walk = {.group = group, .runs = runs};
    cut_range(group, range, walk.parts);
    enter_part(&walk);
    return walk;
}

static bool next_piece(piece_walk *walk, piece *out)
{
    if (walk->run >= walk->last && walk->part == 0) {
        walk->part = 1;
        enter_part(walk);
    }
    if (walk->run >= walk->last) return false;
    cl_run run;
    const cl_range *part = &walk->parts[walk->part];
    (void)cl_run_clip(&walk->runs->items[walk->run], part->p0, part->p1, &run);
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

/* ---- room in the other pool ---------------------------------------------------------------------- */

/* Behind the last position that a list holds or has lost in a range; 0: there is none. */
static int64_t end_in(const cl_runs *list, cl_range range)
{
    for (uint32_t i = list->n; i-- > 0;) {
        cl_run part;
        if (cl_run_clip(&list->items[i], range.p0, range.p1, &part))
            return cl_run_last(&part) + 1LL;
    }
    return 0;
}

/* Where the copy will end: the range is what the source has there, the rest what was there. */
static int64_t end_of_copy(const cl_group *group, cellar_seq from, cellar_seq to, cl_range range)
{
    const cl_range before = {0, range.p0}, behind = {range.p1, INT64_MAX};
    const cl_runs *lists[] = {cl_group_runs(group, from), lost_by(group, from),
                              cl_group_runs(group, to), lost_by(group, to)};
    int64_t end = 0;
    for (int l = 0; l < 4; l++) {
        int64_t its = end_in(lists[l], l < 2 ? range : behind);
        if (l >= 2 && its == 0 && range.p0 > 0) its = end_in(lists[l], before);
        if (its > end) end = its;
    }
    return end;
}

/* The two parts of a copy: what it takes over from the source, and what its sequence has outside the range. */
typedef struct halves {
    const cl_runs *copied, *own;
    cl_range range;
    int64_t bound; /* what stands below is not seen by the copy */
} halves;

/* The first run of a list at or behind `at`, clipped to [at, end); false: there is none. */
static bool first_run(const cl_runs *list, int64_t at, int64_t end, cl_run *out)
{
    uint32_t i = cl_runs_find(list, at);
    return i < list->n && cl_run_clip(&list->items[i], at, end, out);
}

/* The oldest run from `at` on that the copy does not see, up to where the range begins or ends. */
static bool oldest_of(const halves *h, int64_t at, bool *is_own, cl_run *out)
{
    while (at < h->bound) {
        bool is_outside = at < h->range.p0 || at >= h->range.p1;
        int64_t end = at < h->range.p0 ? h->range.p0 : is_outside ? INT64_MAX : h->range.p1;
        if (end > h->bound) end = h->bound;
        *is_own = is_outside;
        if (first_run(is_outside ? h->own : h->copied, at, end, out)) return true;
        at = end;
    }
    return false;
}

/*
 * Give up the oldest of what the copy would hold and not see, until nothing is missing: what lies in the
 * range is not copied, what lies outside of it becomes free, if the sequence does not need it as it is now.
 * What is older than that and could not be freed goes when all is done (lose_skipped).
 */
static uint32_t shorten(cl_group *group, cl_window_cut *cut, cellar_seq from, cellar_seq to,
                        cl_range range, uint32_t missing)
{
    const cl_pool *pool = &group->sequences.cells.pools[pool_of(group, to)];
    halves h = {cl_group_runs(group, from), cl_group_runs(group, to), range,
                cl_window_first_seen(group, end_of_copy(group, from, to, range))};
    int64_t at = group->window.n_sinks;
    bool is_own;
    cl_run run;
    while (missing > 0 && oldest_of(&h, at, &is_own, &run)) {
        uint32_t n = run.step && run.len > missing ? missing : run.len, gained = n;
        if (is_own) {
            uint32_t n_free = pool->n_free;
            n = cl_window_cut_oldest(group, cut, run, n);
            gained = pool->n_free - n_free;
        }
        bool is_cut = n > 0; /* else the sequence needs all of it */
        at = !run.step ? run.pos + 1LL : run.pos + (int64_t)(is_cut ? n : run.len);
        if (is_cut) group->copy_kept_from = at;
        missing -= gained < missing ? gained : missing;
    }
    return missing;
}

/*
 * What will be replaced goes early; where a store can fail half-way, only what is not seen any more.
 * Returns how many cells are still missing.
 */
static uint32_t give_up_replaced(cl_group *group, cl_window_cut *cut, cellar_seq to, cl_range range,
                                 uint32_t missing)
{
    const cl_pool *pool = &group->sequences.cells.pools[pool_of(group, to)];
    const cl_runs *own = cl_group_runs(group, to);
    int64_t at = range.p0 > group->window.n_sinks ? range.p0 : group->window.n_sinks;
    cl_run run;
    int64_t bound = cut->bound;
    if (!cl_group_can_fail_to_copy(group)) { /* nothing can want them back once rows are written */
        at = range.p0;
        cut->bound = INT64_MAX;
    }
    while (missing > 0 && first_run(own, at, range.p1, &run)) {
        uint32_t n_free = pool->n_free, n = run.step && run.len > missing ? missing : run.len;
        n = cl_window_cut_oldest(group, cut, run, n);
        if (n == 0) break;
        group->n_replaced += n;
        uint32_t gained = pool->n_free - n_free;
        missing -= gained < missing ? gained : missing;
        at = run.step ? run.pos + (int64_t)n : run.pos; /* others may share the position */
    }
    cut->bound = bound;
    return missing;
}

/* Make the other pool have n free cells; the group's window may give up what nobody sees. */
static cellar_status make_room(cl_group *group, cellar_seq from, cellar_seq to, uint32_t slot,
                               cl_range range, uint64_t n, cellar_error *error)
{
    uint32_t pool = pool_of(group, to);
    const cl_pool *its = &group->sequences.cells.pools[pool];
    uint64_t missing = n > its->n_free ? n - its->n_free : 0;
    if (missing > 0 && cl_group_has_window(group) && n <= UINT32_MAX) {
        uint32_t left = (uint32_t)missing;
        CL_TRY(cl_window_reserve_give_up(group, (uint32_t)n, error));
        cl_window_cut cut = cl_window_start_cut(group, slot);
        left = give_up_replaced(group, &cut, to, range, left);
        if (left > 0) left = cl_window_give_up(group, pool, left, slot);
        if (left > 0) left = shorten(group, &cut, from, to, range, left);
        if (left > 0) left = cl_window_take_checkpoints(group, pool, left);
        missing = left;
    }
    if (missing > 0)
        CL_FAIL(error, CELLAR_FULL, (int64_t)missing,
                "a copy to pool %u needs %llu cells, %u are free", pool, (unsigned long long)n,
                its->n_free);
    return CELLAR_OK;
}

/* ---- between pools ------------------------------------------------------------------------------- */

/* Note a move for the engine; room was reserved. */
static void note_move(cl_group *group, uint32_t from, uint32_t to, uint32_t n)
{
    group->moves->items[group->moves->n++] = (cellar_move){group->index, from, to, n, 0};
}

static cellar_status reserve_far(cl_group *group, uint32_t slot, uint64_t n, const cl_runs *source,
                                 uint32_t n_lost, cellar_error *error)
{
    cl_alloc *alloc = group->sequences.alloc;
    void *stretches = group->copy_stretches;
    uint64_t n_runs = source->n, n_own = group->sequences.table.items[slot].runs.n;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_STEP, &stretches, &group->copy_capacity, n,
                               sizeof(cl_stretch));
    group->copy_stretches = stretches;
    if (!ok) return cl_error_no_memory(error, "a copy", (size_t)n * sizeof(cl_stretch));
    /* Cuts: two of the range, two that giving up makes, and one where the old ends. */
    CL_TRY(cl_sequences_reserve(&group->sequences, slot, n_runs + n + 6, error));
    uint64_t n_more = cl_group_has_window(group) ? n_lost + n_runs + n_own + 6 : 0;
    CL_TRY(cl_sequences_reserve_lost(&group->sequences, slot, n_more, error));
    if (!group->is_external) return CELLAR_OK;
    void *moves = group->moves->items;
    group->moves->n_promised += n_runs + n;
    ok = cl_alloc_reserve(alloc, CELLAR_BYTES_STEP, &moves, &group->moves->capacity,
                          group->moves->n + group->moves->n_promised, sizeof(cellar_move));
    group->moves->items = moves;
    return ok ? CELLAR_OK : cl_error_no_memory(error, "row moves", (size_t)n * sizeof(cellar_move));
}

/* Reserve everything for a copy to another pool, and choose the cells. */
static cellar_status prepare_far(cl_group *group, cellar_seq from, cellar_seq to, cl_range range,
                                 cellar_error *error)
{
    cl_cells *cells = &group->sequences.cells;
    const cl_runs *source = cl_group_runs(group, from);
    uint32_t pool = pool_of(group, to), n_lost = lost_by(group, from)->n, slot;
    uint64_t n = count_cells(source, range);
    bool has_lost = cl_lost_any(lost_by(group, from), range.p0, range.p1);
    bool is_there = cl_sequence_table_find(&group->sequences.table, to) != CL_NO_SLOT;
    group->n_copy_stretches = 0;
    group->copy_kept_from = 0;
    group->n_replaced = 0;
    group->has_copied = false;
    cl_window_forget_step(group);
    if (n == 0 && !has_lost && !is_there) return CELLAR_OK;
    CL_TRY(cl_sequences_add(&group->sequences, to, &slot, error));
    source = cl_group_runs(group, from); /* the table may have moved */
    cellar_status status = reserve_far(group, slot, n, source, n_lost, error);
    if (status == CELLAR_OK) status = make_room(group, from, to, slot, range, n, error);
    if (status != CELLAR_OK) {
        cl_group_cancel_copy(group, to);
        return status;
    }
    n = count_copied(group, cl_group_runs(group, from), range);
    cl_request request = {slot + 1, pool, CL_NO_CELL, (uint32_t)n};
    if (n > 0)
        group->n_copy_stretches = cl_placement_choose(cells, &request, group->copy_stretches);
    return CELLAR_OK;
}

bool cl_group_can_fail_to_copy(const cl_group *group)
{
    return !group->is_external && !cl_storage_has_addresses(&group->storage);
}

cellar_status cl_group_copy_rows(cl_group *group, cellar_seq from, cl_range range,
                                 cellar_error *error)
{
    if (group->n_copy_stretches == 0 || group->is_external) return CELLAR_OK;
    piece_walk walk = start_walk(group, cl_group_runs(group, from), range);
    piece its;
    group->has_copied = true;
    while (next_piece(&walk, &its))
        if (!cl_storage_copy(&group->storage, its.to, its.run.cell, its.run.len))
            CL_FAIL(error, CELLAR_IO, its.to, "a store could not copy rows");
    return CELLAR_OK;
}

/* What was not copied is lost, and what is older than that goes with it. */
static void lose_skipped(cl_group *group, uint32_t slot, const cl_runs *source, cl_range range)
{
    cl_sequence *sequence = &group->sequences.table.items[slot];
    int64_t n_sinks = group->window.n_sinks, kept_from = group->copy_kept_from;
    int64_t p0 = range.p0 > n_sinks ? range.p0 : n_sinks;
    int64_t p1 = range.p1 < kept_from ? range.p1 : kept_from;
    if (kept_from == 0) return;
    group->n_reclaimed += cl_window_drop_before(group, sequence, kept_from);
    cl_run part;
    for (uint32_t i = cl_runs_find(source, p0); i < source->n; i++) {
        if (!cl_run_clip(&source->items[i], p0, p1, &part)) break;
        cl_lost_add(&sequence->lost, part.pos, cl_run_last(&part) + 1LL);
        group->n_reclaimed += part.len;
    }
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
    lose_skipped(group, slot, source, range);
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
    group->n_step_reclaimed -= group->n_replaced; /* that would have gone anyway */
    cl_window_keep_given_up(group);
    group->n_copy_stretches = 0;
    cl_sequences_drop_if_empty(&group->sequences, slot);
}

/* ---- wherever to -------------------------------------------------------------------------------- */

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
    if (group->n_victims > 0 && group->has_copied)
        cl_window_keep_given_up(group);
    else if (group->n_victims > 0)
        cl_window_take_back(group);
    cl_sequences_cancel_copy(&group->sequences, to);
}
