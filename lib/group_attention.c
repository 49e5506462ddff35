/*
 * group_attention.c: a step of an attention group: a cell for every token.
 *
 * Find the sequences (making those that are new), choose cells for each, take them, and write down the
 * runs that a commit would append. Without a window this is one go over the whole batch, so that a long
 * prompt gets a long stretch whatever the micro-batch. With a window it is done micro-batch by
 * micro-batch, because a later one may use cells that fell out of sight of it: group_window.c makes room.
 * Everything a commit needs is reserved by then.
 */
#include <assert.h>
#include <string.h>

#include "checkpoints.h"
#include "error.h"
#include "group.h"
#include "placement.h"

/* ---- begin ----------------------------------------------------------------------------------- */

/* Arrays that are needed during begin only. */
typedef struct begin_room {
    cl_stretch *stretches; /* [n_tokens] */
    cl_past *pasts;        /* [n_members] */
    uint32_t *wanted;      /* [n_pools] */
} begin_room;

static cellar_status carve(cl_group *group, const cl_step *step, begin_room *room,
                           cellar_error *error)
{
    uint32_t n_tokens = step->n_tokens, n_members = step->n_members;
    uint32_t n_memberships = step->member_begin[n_tokens];
    uint32_t n_pools = group->sequences.cells.n_pools;
    cl_arena *arena = &group->arena;
    size_t total = 0;
    bool fits = cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(cl_participant)) &&
                cl_arena_add(&total, (size_t)n_members + 1, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_memberships, sizeof(cl_run)) &&
                cl_arena_add(&total, n_pools, sizeof(cl_pool)) &&
                cl_arena_add(&total, n_tokens, sizeof(cl_label)) &&
                cl_arena_add(&total, n_tokens, sizeof(cl_stretch)) &&
                cl_arena_add(&total, n_members, sizeof(cl_past)) &&
                cl_arena_add(&total, n_pools, sizeof(uint32_t));
    if (!fits || !cl_arena_reset(arena, group->sequences.alloc, total))
        return cl_error_no_memory(error, "a step", total);
    group->cells_of = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    group->participants = cl_arena_take(arena, n_members, sizeof(cl_participant));
    group->first_tokens = cl_arena_take(arena, (size_t)n_members + 1, sizeof(uint32_t));
    group->by_first = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    cl_run *pending = cl_arena_take(arena, n_memberships, sizeof(cl_run));
    group->old_pools = cl_arena_take(arena, n_pools, sizeof(cl_pool));
    group->labels = cl_arena_take(arena, n_tokens, sizeof(cl_label));
    room->stretches = cl_arena_take(arena, n_tokens, sizeof(cl_stretch));
    room->pasts = cl_arena_take(arena, n_members, sizeof(cl_past));
    room->wanted = cl_arena_take(arena, n_pools, sizeof(uint32_t));
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
        CL_TRY(cl_sequences_add(sequences, id, &participant->slot, error));
        participant->old_claim = sequences->table.items[participant->slot].claim;
        group->n_participants = m + 1;
    }
    return CELLAR_OK;
}

/* The last cell that a participant has so far, pending ones included. */
static uint32_t tail_of(const cl_group *group, uint32_t m)
{
    const cl_participant *participant = &group->participants[m];
    const cl_runs *runs = &participant->pending;
    if (runs->n == 0) runs = &group->sequences.table.items[participant->slot].runs;
    if (runs->n == 0) return CL_NO_CELL;
    const cl_run *end = &runs->items[runs->n - 1];
    return end->cell + end->len - 1;
}

/* Cells for tokens by_first[first..first + n), whose first member is m; there are as many free. */
static bool place(cl_group *group, uint32_t m, uint32_t first, uint32_t n, cl_stretch *stretches)
{
    if (n == 0) return true;
    cl_cells *cells = &group->sequences.cells;
    uint32_t slot = group->participants[m].slot, n_stretches = 1;
    cl_request request = {slot + 1, group->sequences.table.items[slot].pool, tail_of(group, m), n};
    if (!group->is_contiguous)
        n_stretches = cl_placement_choose(cells, &request, stretches);
    else if (!cl_placement_choose_one(cells, &request, stretches))
        return false;
    for (uint32_t s = 0; s < n_stretches; s++) {
        cl_cells_take(cells, stretches[s].cell, stretches[s].len, 1);
        for (uint32_t i = 0; i < stretches[s].len; i++)
            group->cells_of[group->by_first[first++]] = stretches[s].cell + i;
    }
    uint32_t last = stretches[n_stretches - 1].cell + stretches[n_stretches - 1].len - 1;
    cl_sequences_set_claim(&group->sequences, slot, cl_placement_claim(cells, slot + 1, last));
    return true;
}

/*
 * What the cells of tokens [first, end) hold, the runs that each sequence gains, a count for each
 * further sequence.
 */
static void note_pending(cl_group *group, const cl_step *step, uint32_t first, uint32_t end)
{
    cl_cells *cells = &group->sequences.cells;
    for (uint32_t i = first; i < end; i++) {
        uint32_t cell = group->cells_of[i];
        cl_window_keep_label(group, cell);
        cells->stored_pos[cell] = step->positions[i];
        cells->token[cell] = step->tokens[i];
        if (cells->points) cells->points[cell] = cl_step_point(step, i);
        cl_run run = {.pos = step->positions[i], .cell = cell, .len = 1, .step = 1, .shift = 0};
        for (uint32_t k = step->member_begin[i]; k < step->member_begin[i + 1]; k++) {
            cl_runs_append(&group->participants[step->member_of[k]].pending, run);
            if (k > step->member_begin[i]) cl_cells_hold(cells, cell, 1);
        }
    }
}

/* The first place of member m in by_first whose token is `token` or a later one. */
static uint32_t place_of_token(const cl_group *group, uint32_t m, uint32_t token)
{
    uint32_t low = group->first_tokens[m], high = group->first_tokens[m + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (group->by_first[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many of tokens [first, end) are member m's; they stand in by_first from *at on. */
static uint32_t count_own(const cl_group *group, uint32_t m, uint32_t first, uint32_t end,
                          uint32_t *at)
{
    *at = place_of_token(group, m, first);
    return place_of_token(group, m, end) - *at;
}

static cellar_status fail_full(const cl_group *group, uint32_t pool, uint32_t wanted,
                               uint32_t missing, cellar_error *error)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    if (missing == 0)
        CL_FAIL_BECAUSE(error, CELLAR_FULL, CELLAR_REASON_SCATTERED, wanted,
                        "%u tokens need one stretch of cells, the %u free ones lie scattered: "
                        "compact, or read fewer at once",
                        wanted, its->n_free);
    CL_FAIL(error, CELLAR_FULL, missing,
            "%u token%s need%s %u cell%s, %u of %u are free: %u missing", wanted,
            wanted == 1 ? "" : "s", wanted == 1 ? "s" : "", wanted, wanted == 1 ? "" : "s",
            its->n_free, its->n, missing);
}

/* Make sure that pool has cells for `wanted` tokens of a micro-batch, giving up what no query sees. */
static cellar_status make_room(cl_group *group, uint32_t pool, uint32_t wanted, cellar_error *error)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    if (wanted <= its->n_free) return CELLAR_OK;
    uint32_t missing = wanted - its->n_free;
    if (cl_group_has_window(group)) missing = cl_window_reclaim(group, pool, missing);
    return missing > 0 ? fail_full(group, pool, wanted, missing, error) : CELLAR_OK;
}

/* Cells for tokens [first, end): a micro-batch, or the whole batch. */
static cellar_status place_tokens(cl_group *group, const cl_step *step, uint32_t first,
                                  uint32_t end, const begin_room *room, cellar_error *error)
{
    uint32_t n_pools = group->sequences.cells.n_pools;
    memset(room->wanted, 0, n_pools * sizeof *room->wanted);
    for (uint32_t i = first; i < end; i++)
        room->wanted[step->members[step->member_of[step->member_begin[i]]].pool]++;
    for (uint32_t p = 0; p < n_pools; p++)
        CL_TRY(make_room(group, p, room->wanted[p], error));
    for (uint32_t m = 0; m < step->n_members; m++) {
        uint32_t at, n = count_own(group, m, first, end, &at);
        if (!place(group, m, at, n, room->stretches))
            return fail_full(group, step->members[m].pool, n, 0, error);
    }
    note_pending(group, step, first, end);
    return CELLAR_OK;
}

static cellar_status place_all(cl_group *group, const cl_step *step, const begin_room *room,
                               cellar_error *error)
{
    if (!cl_group_has_window(group) && !group->is_contiguous)
        return place_tokens(group, step, 0, step->n_tokens, room, error);
    for (uint32_t u = 0; u < step->n_ubatches; u++) {
        uint32_t first = cl_step_first(step, u);
        CL_TRY(place_tokens(group, step, first, first + cl_step_count(step, u), room, error));
    }
    return CELLAR_OK;
}

/* The largest micro-batch: what a sweep has to have room for. */
static uint32_t largest_ubatch(const cl_step *step)
{
    uint32_t largest = 0;
    for (uint32_t u = 0; u < step->n_ubatches; u++)
        if (cl_step_count(step, u) > largest) largest = cl_step_count(step, u);
    return largest;
}

static cellar_status reserve_commit(cl_group *group, const cl_step *step, cl_past *pasts,
                                    const cl_rope *ropes, uint32_t n_ropes, cellar_error *error)
{
    cl_sequences *sequences = &group->sequences;
    /* Two more: giving up may leave a run's sinks apart from its end, old and new ones. */
    for (uint32_t m = 0; m < step->n_members; m++) {
        const cl_participant *participant = &group->participants[m];
        uint64_t n = participant->pending.n, n_runs;
        CL_TRY(cl_sequences_reserve(sequences, participant->slot, n + 2, error));
        if (participant->kept_from == 0) continue;
        n_runs = sequences->table.items[participant->slot].runs.n;
        CL_TRY(cl_sequences_reserve_lost(sequences, participant->slot, n_runs + n + 2, error));
    }
    if (group->is_external) return CELLAR_OK;
    uint32_t n_pasts = 0;
    for (uint32_t m = 0; m < step->n_members; m++) {
        if (group->first_tokens[m] == group->first_tokens[m + 1]) continue;
        const cl_participant *participant = &group->participants[m];
        pasts[n_pasts++] = (cl_past){&sequences->table.items[participant->slot].runs,
                                     &participant->pending, &group->window, step->members[m].first};
    }
    return cl_sweep_prepare(&group->sweep, pasts, n_pasts, largest_ubatch(step), ropes, n_ropes,
                            sequences->alloc, error);
}

static cellar_status begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                           uint32_t n_ropes, cellar_error *error)
{
    cl_cells *cells = &group->sequences.cells;
    begin_room room;
    CL_TRY(carve(group, step, &room, error));
    memcpy(group->old_pools, cells->pools, cells->n_pools * sizeof *cells->pools);
    group->n_participants = group->n_victims = group->n_labels = 0;
    group->is_written = group->reuses_cells = false;
    group->n_step_reclaimed = 0;
    for (uint32_t i = 0; i < step->n_tokens; i++)
        group->cells_of[i] = CL_NO_CELL;
    cellar_status status = cl_group_has_window(group) ? cl_window_reserve(group, step, error)
                                                      : CELLAR_OK;
    if (status == CELLAR_OK) status = find_participants(group, step, error);
    if (status == CELLAR_OK) {
        sort_by_first(group, step);
        status = place_all(group, step, &room, error);
    }
    if (status == CELLAR_OK)
        status = reserve_commit(group, step, room.pasts, ropes, n_ropes, error);
    if (status != CELLAR_OK) cl_attention_abort(group, step);
    return status;
}

/*
 * A step whose tokens have room side by side does not use a cell twice, whatever else has to go for that:
 * its engine may then store all micro-batches before it attends. If they have none, the oldest goes
 * first, and that is often the beginning of a long step itself.
 */
cellar_status cl_attention_begin(cl_group *group, const cl_step *step, const cl_rope *ropes,
                                 uint32_t n_ropes, cellar_error *error)
{
    bool has_choice = cl_group_has_window(group) && step->n_ubatches > 1;
    group->may_reuse = !has_choice;
    cellar_status status = begin(group, step, ropes, n_ropes, has_choice ? NULL : error);
    if (!has_choice || status == CELLAR_OK) return status;
    group->may_reuse = true;
    return begin(group, step, ropes, n_ropes, error);
}

/* ---- the end of a step ----------------------------------------------------------------------- */

static void end_step(cl_group *group)
{
    group->n_participants = group->n_victims = 0;
    group->sweep.ubatch = UINT32_MAX;
}

/* Append a pending run, without what was given up again during the step. */
static void append_kept(const cl_group *group, cl_runs *runs, cl_run run, int32_t kept_from)
{
    cl_run part;
    int64_t n_sinks = group->window.n_sinks;
    if (kept_from <= 0) {
        cl_runs_append(runs, run);
        return;
    }
    if (n_sinks > 0 && cl_run_clip(&run, 0, n_sinks, &part)) cl_runs_append(runs, part);
    if (cl_run_clip(&run, kept_from > n_sinks ? kept_from : n_sinks, INT64_MAX, &part))
        cl_runs_append(runs, part);
}

void cl_attention_commit(cl_group *group, const cl_step *step)
{
    (void)step;
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_participant *participant = &group->participants[m];
        cl_sequence *sequence = &group->sequences.table.items[participant->slot];
        cl_window_drop_overrun(group, participant);
        for (uint32_t i = 0; i < participant->pending.n; i++)
            append_kept(group, &sequence->runs, participant->pending.items[i],
                        participant->kept_from);
    }
    group->n_reclaimed += group->n_step_reclaimed;
    end_step(group);
}

/* Release what a participant's pending tokens hold, those given up already excepted. */
static void release_pending(cl_group *group, const cl_participant *participant)
{
    cl_cells *cells = &group->sequences.cells;
    int64_t n_sinks = group->window.n_sinks, kept_from = participant->kept_from;
    for (uint32_t i = 0; i < participant->pending.n; i++) {
        const cl_run *run = &participant->pending.items[i];
        cl_run part;
        if (kept_from <= n_sinks) {
            cl_cells_release(cells, run->cell, run->len);
            continue;
        }
        if (n_sinks > 0 && cl_run_clip(run, 0, n_sinks, &part))
            cl_cells_release(cells, part.cell, part.len);
        if (cl_run_clip(run, kept_from, INT64_MAX, &part))
            cl_cells_release(cells, part.cell, part.len);
    }
}

/* Cells that were taken but not noted as pending yet, when placing stopped half-way. */
static void release_unnoted(cl_group *group, const cl_step *step)
{
    cl_cells *cells = &group->sequences.cells;
    uint32_t n_noted = 0; /* tokens are noted a micro-batch, or the batch, at a time */
    for (uint32_t m = 0; m < group->n_participants; m++)
        for (uint32_t i = 0; i < group->participants[m].pending.n; i++)
            n_noted += group->participants[m].pending.items[i].len;
    uint32_t first = 0;
    while (first < step->n_tokens && step->member_begin[first] < n_noted)
        first++;
    for (uint32_t i = first; i < step->n_tokens; i++)
        if (group->cells_of[i] != CL_NO_CELL) cl_cells_release(cells, group->cells_of[i], 1);
}

void cl_attention_abort(cl_group *group, const cl_step *step)
{
    cl_sequences *sequences = &group->sequences;
    if (group->n_participants == step->n_members) {
        release_unnoted(group, step);
        for (uint32_t m = 0; m < group->n_participants; m++)
            release_pending(group, &group->participants[m]);
    }
    if (group->is_written)
        group->n_reclaimed += cl_window_count_taken(group);
    else
        cl_window_restore(group);
    /* Backwards, so that claims and slots return the way they came. */
    for (uint32_t m = group->n_participants; m-- > 0;)
        cl_sequences_set_claim(sequences, group->participants[m].slot, CL_NO_BLOCK);
    for (uint32_t m = group->n_participants; m-- > 0;) {
        cl_participant *participant = &group->participants[m];
        cl_sequences_set_claim(sequences, participant->slot, participant->old_claim);
        if (participant->is_new) cl_sequences_drop_if_empty(sequences, participant->slot);
    }
    if (!group->is_written || group->n_victims == 0)
        memcpy(sequences->cells.pools, group->old_pools,
               sequences->cells.n_pools * sizeof *group->old_pools);
    end_step(group);
}

/* ---- the sweep of a micro-batch -------------------------------------------------------------- */

static int32_t smallest_position(const cl_step *step, uint32_t begin, const uint32_t *local,
                                 uint32_t n)
{
    int32_t smallest = INT32_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (step->positions[begin + local[i]] < smallest)
            smallest = step->positions[begin + local[i]];
    return smallest;
}

void cl_group_sweep(cl_group *group, const cl_step *step, uint32_t ubatch)
{
    if (group->sweep.ubatch == ubatch) return;
    uint32_t begin = cl_step_first(step, ubatch), end = begin + cl_step_count(step, ubatch);
    for (uint32_t m = 0; m < step->n_members; m++)
        group->participants[m].n_visible = 0;
    for (uint32_t k = 0; k < step->member_begin[end]; k++)
        group->participants[step->member_of[k]].n_visible++;

    /* Cells that are used twice hold the points of their last token, not yet of this one's past. */
    if (group->reuses_cells && group->sequences.cells.points)
        for (uint32_t i = 0; i < end; i++)
            group->sequences.cells.points[group->cells_of[i]] = cl_step_point(step, i);
    cl_sweep_begin(&group->sweep, ubatch);
    uint32_t *local = group->sweep.tokens; /* filled behind what the views have taken already */
    for (uint32_t m = 0; m < step->n_members; m++) {
        uint32_t at, n = count_own(group, m, begin, end, &at);
        if (n == 0) continue;
        for (uint32_t i = 0; i < n; i++)
            local[group->sweep.n_tokens + i] = group->by_first[at + i] - begin;
        const cl_participant *participant = &group->participants[m];
        cl_past past = {&group->sequences.table.items[participant->slot].runs,
                        &participant->pending, &group->window,
                        smallest_position(step, begin, local + group->sweep.n_tokens, n)};
        cl_sweep_add_view(&group->sweep, m, &past, participant->n_visible,
                          local + group->sweep.n_tokens, n);
    }
    cl_sweep_finish(&group->sweep);
}
