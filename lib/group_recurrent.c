/*
 * group_recurrent.c: layers that fold everything they read into a state of fixed size.
 *
 * A cell of this group is a state; it stands at the position of the last token it has read. A sequence
 * holds its present state and the last few before it (n_rollback), in a run list like any other, so
 * forking shares states and rolling back drops some. States are never changed: each step writes new ones,
 * so an abort has nothing to undo. What a run list of states cannot express is refused: a state cannot
 * forget or move a part of what it has read.
 *
 * A segment of a micro-batch reads one state and writes one or more: the state after its last token, and
 * those after earlier tokens that must be kept, for rolling back or for a checkpoint. States that only
 * lead from one micro-batch to the next are written over in place.
 */
#include <string.h>

#include "checkpoints.h"
#include "error.h"
#include "group.h"

/* ---- which operations a state can follow ----------------------------------------------------- */

/* Where the present state of a sequence stands, + 1; 0: it has none. */
static int64_t next_of(const cl_runs *runs)
{
    return runs->n ? cl_run_last(&runs->items[runs->n - 1]) + 1LL : 0;
}

/* Does a list hold the state that stands at pos? */
static bool holds(const cl_runs *runs, int64_t pos)
{
    uint32_t i = cl_runs_find(runs, pos);
    return i < runs->n && runs->items[i].pos <= pos;
}

/* The largest position <= n at which a sequence can go on here, checkpoints included. */
static cellar_pos nearest_state(const cl_group *group, cellar_seq seq, int64_t n)
{
    cellar_pos limit = n < INT32_MAX ? (cellar_pos)n : INT32_MAX, in_checkpoint = 0;
    cellar_pos held = cl_group_continue_at(group, seq, limit);
    if (held > limit) held = 0;
    if (!group->checkpoints ||
        cl_checkpoints_find(group->checkpoints, seq, limit, &in_checkpoint) == CL_NO_CHECKPOINT)
        in_checkpoint = 0;
    return held > in_checkpoint ? held : in_checkpoint;
}

/* A range against what a sequence has read. */
typedef struct extent {
    int64_t begin, next; /* it has read [begin, next); next 0: nothing */
    bool is_touched;     /* the range holds something of that */
    bool is_end;         /* and the last of it */
    bool is_whole;       /* and all of it */
} extent;

static extent extent_of(const cl_group *group, cellar_seq seq, cl_range range)
{
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, seq);
    extent e = {.next = next_of(cl_group_runs(group, seq))};
    if (slot != CL_NO_SLOT) e.begin = group->sequences.table.items[slot].begin;
    e.is_touched = e.next > 0 && range.p0 < range.p1 && range.p0 < e.next && range.p1 > e.begin;
    e.is_end = e.is_touched && range.p1 >= e.next;
    e.is_whole = e.is_end && range.p0 <= e.begin;
    return e;
}

cellar_status cl_recurrent_prepare_remove(cl_group *group, cellar_seq seq, cl_range range,
                                          cellar_error *error)
{
    extent e = extent_of(group, seq, range);
    if (!e.is_touched || e.is_whole) return CELLAR_OK;
    if (e.is_end && holds(cl_group_runs(group, seq), range.p0 - 1)) return CELLAR_OK;
    cellar_pos at = nearest_state(group, seq, range.p0);
    if (!e.is_end)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_STATE_IS_WHOLE, at,
                        "sequence %d: a recurrent state cannot forget [%lld, %lld), only an end",
                        (int)seq, (long long)range.p0, (long long)range.p1);
    CL_FAIL_BECAUSE(
        error, CELLAR_REFUSED, CELLAR_REASON_NO_STATE, at,
        "sequence %d: the state at position %lld is not kept; the nearest before is at %d",
        (int)seq, (long long)range.p0, (int)at);
}

static cellar_status refuse_part(cellar_seq seq, cl_range range, cellar_error *error)
{
    CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_STATE_IS_WHOLE, range.p0,
                    "sequence %d: what a recurrent state has read cannot be moved in part",
                    (int)seq);
}

cellar_status cl_recurrent_prepare_shift(cl_group *group, cellar_seq seq, cl_range range,
                                         int64_t delta, cellar_error *error)
{
    extent e = extent_of(group, seq, range);
    if (!e.is_touched || delta == 0) return CELLAR_OK;
    int64_t last = (e.is_end ? e.next : range.p1) - 1;
    if (last + delta > INT32_MAX - 1)
        CL_FAIL(error, CELLAR_INVALID, last,
                "shift of sequence %d by %lld: position %lld would become %lld, above the largest",
                (int)seq, (long long)delta, (long long)last, (long long)(last + delta));
    if (!e.is_whole) return refuse_part(seq, range, error);
    /* Below 0 tokens are forgotten: all of them, or none. */
    if (e.begin + delta >= 0 || e.next - 1 + delta < 0) return CELLAR_OK;
    CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_STATE_IS_WHOLE, e.begin,
                    "shift of sequence %d by %lld: a recurrent state has read from position %lld "
                    "on and cannot forget what would stand below 0",
                    (int)seq, (long long)delta, (long long)e.begin);
}

void cl_recurrent_shift(cl_group *group, cellar_seq seq, cl_range range, int64_t delta)
{
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, seq);
    if (!extent_of(group, seq, range).is_whole) return;
    cl_sequence *sequence = &group->sequences.table.items[slot];
    int64_t begin = sequence->begin + delta;
    sequence->begin = begin > 0 ? (int32_t)begin : 0; /* below 0: all of it goes */
    cl_sequences_shift(&group->sequences, seq, range, delta);
}

cellar_status cl_recurrent_prepare_divide(cl_group *group, cellar_seq seq, cl_range range,
                                          cellar_error *error)
{
    return extent_of(group, seq, range).is_touched ? refuse_part(seq, range, error) : CELLAR_OK;
}

/* ---- copy ------------------------------------------------------------------------------------ */

/*
 * What a copy of a beginning, up to p1, takes along: the first n of these runs, as far as they lie before
 * p1. They are the sequence's own, or that of a checkpoint at p1 if it does not keep that state itself (nor
 * an older one then). NULL: there is none to go on from.
 */
static const cl_runs *find_copied(const cl_group *group, cellar_seq from, int64_t p1, uint32_t *n)
{
    const cl_runs *runs = cl_group_runs(group, from);
    if (p1 < next_of(runs) && !holds(runs, p1 - 1)) {
        cellar_pos at = 0;
        uint32_t checkpoint = CL_NO_CHECKPOINT;
        if (group->checkpoints)
            checkpoint = cl_checkpoints_find(group->checkpoints, from, (cellar_pos)p1, &at);
        if (checkpoint == CL_NO_CHECKPOINT || at != p1) return NULL;
        runs = &cl_checkpoints_pin(group->checkpoints, checkpoint, group->index)->runs;
    }
    uint32_t first;
    cl_sequences_find_range(runs, (cl_range){0, p1}, &first, n);
    return runs;
}

cellar_status cl_recurrent_prepare_copy(cl_group *group, cellar_seq from, cellar_seq to,
                                        cl_range range, cellar_error *error)
{
    extent source = extent_of(group, from, range), target = extent_of(group, to, range);
    if (!source.is_touched) {
        CL_TRY(cl_recurrent_prepare_remove(group, to, range, error));
        return cl_sequences_prepare_remove(&group->sequences, to, range, error);
    }
    if (range.p0 > source.begin)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_STATE_IS_WHOLE, 0,
                        "sequence %d: a recurrent state can only be copied from its beginning",
                        (int)from);
    if (target.next > 0 && !target.is_whole)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_STATE_IS_WHOLE, 0,
                        "sequence %d has read [%lld, %lld), which is not all in the copied range: "
                        "remove that first",
                        (int)to, (long long)target.begin, (long long)target.next);
    uint32_t n = 0, slot;
    if (!find_copied(group, from, range.p1, &n))
        CL_FAIL_BECAUSE(
            error, CELLAR_REFUSED, CELLAR_REASON_NO_STATE, nearest_state(group, from, range.p1),
            "sequence %d: the state at position %lld is not kept", (int)from, (long long)range.p1);
    CL_TRY(cl_sequences_add(&group->sequences, to, &slot, error));
    cellar_status status = cl_sequences_reserve(&group->sequences, slot, n + 2ull, error);
    if (status != CELLAR_OK) cl_sequences_drop_if_empty(&group->sequences, slot);
    return status;
}

void cl_recurrent_copy(cl_group *group, cellar_seq from, cellar_seq to, cl_range range)
{
    cl_sequences *sequences = &group->sequences;
    extent source = extent_of(group, from, range);
    if (!source.is_touched) {
        cl_sequences_remove(sequences, to, range);
        return;
    }
    uint32_t slot = cl_sequence_table_find(&sequences->table, to), n = 0;
    const cl_runs *runs = find_copied(group, from, range.p1, &n);
    /* Hold before releasing: a state that both have must not become free in between. */
    for (uint32_t i = 0; i < n; i++) {
        cl_run part;
        if (cl_run_clip(&runs->items[i], 0, range.p1, &part))
            cl_cells_hold(&sequences->cells, part.cell, part.len);
    }
    cl_sequences_replace(sequences, slot, (cl_range){0, range.p1}, runs->items, n);
    sequences->table.items[slot].begin = (int32_t)source.begin;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/*
 * Where a member stands while the segments of a step are gone through. `transit` is a state of the step's
 * own that its last segment wrote only to lead on; it was written for a set of n_transit sequences, and as
 * long as these stay together it can be written over.
 */
typedef struct progress {
    uint32_t state;   /* that its next segment reads; CELLAR_NO_STATE: zeros */
    uint32_t transit; /* CELLAR_NO_STATE: none */
    uint32_t n_transit;
    cellar_pos last_pos; /* of its last token in the step */
} progress;

typedef struct begin_state {
    cl_group *group;
    const cl_step *step;
    progress *members; /* [n_members] */
    cellar_error *error;
} begin_state;

static cellar_status carve(begin_state *b)
{
    cl_group *group = b->group;
    const cl_step *step = b->step;
    size_t total = 0, n_tokens = step->n_tokens, n_members = step->n_members;
    size_t n_memberships = step->member_begin[n_tokens];
    cl_arena *arena = &group->arena;
    bool fits = cl_arena_add(&total, n_members, sizeof(cl_participant)) &&
                cl_arena_add(&total, n_memberships, sizeof(cl_run)) &&
                cl_arena_add(&total, 1, sizeof(cl_pool)) &&
                cl_arena_add(&total, n_tokens, sizeof(cl_label)) &&
                cl_arena_add(&total, step->n_segments, sizeof(cl_segment_states)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_tokens, sizeof(uint32_t)) &&
                cl_arena_add(&total, n_members, sizeof(progress));
    if (!fits || !cl_arena_reset(arena, group->sequences.alloc, total))
        return cl_error_no_memory(b->error, "a step", total);
    group->participants = cl_arena_take(arena, n_members, sizeof(cl_participant));
    cl_run *pending = cl_arena_take(arena, n_memberships, sizeof(cl_run));
    group->old_pools = cl_arena_take(arena, 1, sizeof(cl_pool));
    group->labels = cl_arena_take(arena, n_tokens, sizeof(cl_label));
    group->states = cl_arena_take(arena, step->n_segments, sizeof(cl_segment_states));
    group->targets = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    group->after = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    group->transits = cl_arena_take(arena, n_tokens, sizeof(uint32_t));
    b->members = cl_arena_take(arena, n_members, sizeof(progress));
    for (uint32_t m = 0; m < n_members; m++) {
        uint32_t n = step->members[m].n_tokens;
        group->participants[m] = (cl_participant){.slot = CL_NO_SLOT, .pending = {pending, 0, n}};
        pending += n;
    }
    return CELLAR_OK;
}

static cellar_status find_participants(begin_state *b)
{
    cl_group *group = b->group;
    const cl_step *step = b->step;
    cl_sequences *sequences = &group->sequences;
    for (uint32_t m = 0; m < step->n_members; m++) {
        cl_participant *participant = &group->participants[m];
        cellar_seq id = step->members[m].id;
        participant->is_new = cl_sequence_table_find(&sequences->table, id) == CL_NO_SLOT;
        CL_TRY(cl_sequences_add(sequences, id, &participant->slot, b->error));
        participant->old_claim = CL_NO_BLOCK;
        group->n_participants = m + 1;
        const cl_runs *runs = &sequences->table.items[participant->slot].runs;
        const cl_run *end = runs->n ? &runs->items[runs->n - 1] : NULL;
        b->members[m] = (progress){.state = end ? end->cell + end->len - 1 : CELLAR_NO_STATE,
                                   .transit = CELLAR_NO_STATE};
        /* One for each pending state, and a cut where the old ones end. */
        CL_TRY(cl_sequences_reserve(sequences, participant->slot, step->members[m].n_tokens + 2ull,
                                    b->error));
    }
    for (uint32_t i = 0; i < step->n_tokens; i++)
        for (uint32_t k = step->member_begin[i]; k < step->member_begin[i + 1]; k++)
            b->members[step->member_of[k]].last_pos = step->positions[i];
    return CELLAR_OK;
}

/* Take what checkpoints hold until a state is free. False: there is none. */
static bool make_room(cl_group *group)
{
    cl_cells *cells = &group->sequences.cells;
    while (cells->n_free == 0 && group->checkpoints) {
        uint32_t least = cl_checkpoints_least(group->checkpoints, group->index, 0);
        if (least == CL_NO_CHECKPOINT) return false;
        cl_window_suspend(group, least);
    }
    return cells->n_free > 0;
}

static uint32_t take_state(cl_group *group, cellar_pos pos, cellar_token token)
{
    cl_cells *cells = &group->sequences.cells;
    cl_request request = {0, 0, CL_NO_CELL, 1};
    cl_stretch stretch;
    (void)cl_placement_choose(cells, &request, &stretch);
    cl_cells_take(cells, stretch.cell, 1, 1);
    cl_window_keep_label(group, stretch.cell);
    cells->stored_pos[stretch.cell] = pos;
    cells->token[stretch.cell] = token;
    return stretch.cell;
}

/*
 * Must the state after a token stay when the step is over? Among the last 1 + n_rollback of all of its
 * sequences, or where a checkpoint is planned.
 */
static bool is_kept(const begin_state *b, uint32_t token, bool *is_recent)
{
    const cl_step *step = b->step;
    int64_t pos = step->positions[token];
    *is_recent = false;
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++) {
        int64_t last = b->members[step->member_of[k]].last_pos;
        *is_recent = *is_recent || pos >= last - (int64_t)b->group->n_rollback;
    }
    return *is_recent ||
           (b->group->checkpoints && cl_checkpoints_is_planned(b->group->checkpoints, token));
}

static bool is_any_planned(const cl_group *group)
{
    return group->checkpoints && group->checkpoints->n_planned > 0;
}

/* The token's sequences will hold the state; the first of them does already. */
static void note_pending(begin_state *b, uint32_t token, uint32_t state)
{
    const cl_step *step = b->step;
    cl_run run = {.pos = step->positions[token], .cell = state, .len = 1, .step = 1, .shift = 0};
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++) {
        cl_runs_append(&b->group->participants[step->member_of[k]].pending, run);
        if (k > step->member_begin[token]) cl_cells_hold(&b->group->sequences.cells, state, 1);
    }
}

static cellar_status fail_full(const begin_state *b)
{
    CL_FAIL_BECAUSE(
        b->error, CELLAR_FULL, CELLAR_REASON_NO_STATES, 1,
        "no free recurrent state for %u sequences: all %u are held; end some sequences, or "
        "raise n_sequences",
        b->step->n_members, b->group->sequences.cells.pools[0].n);
}

/* Is this the last token of one of the sequences it stands in? */
static bool is_final(const begin_state *b, uint32_t token)
{
    const cl_step *step = b->step;
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++)
        if (step->positions[token] == b->members[step->member_of[k]].last_pos) return true;
    return false;
}

static uint32_t count_members(const cl_step *step, uint32_t token)
{
    return step->member_begin[token + 1] - step->member_begin[token];
}

/* The transit state that the sequences of a token may write over; CELLAR_NO_STATE: none. */
static uint32_t own_transit(const begin_state *b, uint32_t token)
{
    const progress *first = &b->members[b->step->member_of[b->step->member_begin[token]]];
    bool is_theirs = first->transit != CELLAR_NO_STATE && first->transit == first->state &&
                     first->n_transit == count_members(b->step, token);
    return is_theirs ? first->transit : CELLAR_NO_STATE;
}

static void set_progress(begin_state *b, uint32_t token, uint32_t state, uint32_t transit)
{
    const cl_step *step = b->step;
    for (uint32_t k = step->member_begin[token]; k < step->member_begin[token + 1]; k++) {
        progress *its = &b->members[step->member_of[k]];
        its->state = state;
        its->transit = transit;
        its->n_transit = count_members(step, token);
    }
}

/* A state that was in transit is kept: the step no longer owns it. */
static void settle_transit(cl_group *group, uint32_t state)
{
    for (uint32_t i = group->n_transits; i-- > 0;)
        if (group->transits[i] == state) {
            group->transits[i] = group->transits[--group->n_transits];
            return;
        }
}

/* The state after a token; *target CELLAR_NO_STATE: none is written there. CELLAR_FULL. */
static cellar_status choose_target(begin_state *b, uint32_t token, bool ends_segment,
                                   uint32_t *target)
{
    cl_group *group = b->group;
    cl_cells *cells = &group->sequences.cells;
    bool is_recent, kept = is_kept(b, token, &is_recent);
    *target = CELLAR_NO_STATE;
    if (!kept && !ends_segment) return CELLAR_OK;
    uint32_t transit = ends_segment ? own_transit(b, token) : CELLAR_NO_STATE;
    if (transit != CELLAR_NO_STATE) {
        *target = transit;
        cells->stored_pos[transit] = b->step->positions[token];
        cells->token[transit] = b->step->tokens[token];
        if (kept) settle_transit(group, transit);
    } else if (make_room(group)) {
        *target = take_state(group, b->step->positions[token], b->step->tokens[token]);
        if (!kept) group->transits[group->n_transits++] = *target;
    } else if (!ends_segment && !is_recent) {
        cl_checkpoints_cancel_planned(group->checkpoints, token);
    } else if (ends_segment || is_final(b, token) || is_any_planned(group)) {
        return fail_full(b); /* it is begun again with fewer checkpoints: they come last */
    }
    if (*target == CELLAR_NO_STATE) return CELLAR_OK;
    if (kept) note_pending(b, token, *target);
    if (ends_segment) set_progress(b, token, *target, kept ? CELLAR_NO_STATE : *target);
    return CELLAR_OK;
}

static cellar_status plan_segment(begin_state *b, uint32_t ubatch, uint32_t s)
{
    cl_group *group = b->group;
    const cellar_segment *segment = &b->step->segments[s];
    uint32_t first = cl_step_first(b->step, ubatch) + segment->first;
    uint32_t member = b->step->member_of[b->step->member_begin[first]];
    cl_segment_states *states = &group->states[s];
    *states = (cl_segment_states){b->members[member].state, group->n_targets, 0};
    for (uint32_t i = 0; i < segment->n_tokens; i++) {
        uint32_t target;
        CL_TRY(choose_target(b, first + i, i + 1 == segment->n_tokens, &target));
        if (target == CELLAR_NO_STATE) continue;
        group->targets[group->n_targets] = target;
        group->after[group->n_targets++] = i + 1;
        states->n_targets++;
    }
    return CELLAR_OK;
}

cellar_status cl_recurrent_begin(cl_group *group, const cl_step *step, cellar_error *error)
{
    begin_state b = {group, step, NULL, error};
    CL_TRY(carve(&b));
    group->old_pools[0] = group->sequences.cells.pools[0];
    group->n_participants = group->n_victims = group->n_labels = 0;
    group->n_targets = group->n_transits = 0;
    group->is_written = false;
    cellar_status status = cl_window_reserve_pins(group, error);
    if (status == CELLAR_OK) status = find_participants(&b);
    for (uint32_t u = 0; status == CELLAR_OK && u < step->n_ubatches; u++)
        for (uint32_t s = step->segment_begin[u];
             status == CELLAR_OK && s < step->segment_begin[u + 1]; s++)
            status = plan_segment(&b, u, s);
    if (status != CELLAR_OK) cl_recurrent_abort(group, step);
    return status;
}

/* ---- the end of a step ----------------------------------------------------------------------- */

static void release_transits(cl_group *group)
{
    while (group->n_transits > 0)
        cl_cells_release(&group->sequences.cells, group->transits[--group->n_transits], 1);
}

void cl_recurrent_commit(cl_group *group, const cl_step *step)
{
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_participant *participant = &group->participants[m];
        cl_sequence *sequence = &group->sequences.table.items[participant->slot];
        if (sequence->runs.n == 0) sequence->begin = step->members[m].first;
        for (uint32_t i = 0; i < participant->pending.n; i++)
            cl_runs_append(&sequence->runs, participant->pending.items[i]);
    }
    release_transits(group);
}

void cl_recurrent_trim(cl_group *group)
{
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_sequence *sequence = &group->sequences.table.items[group->participants[m].slot];
        int64_t first = next_of(&sequence->runs) - 1 - (int64_t)group->n_rollback;
        cl_sequences_remove(&group->sequences, sequence->id, (cl_range){0, first > 0 ? first : 0});
    }
    group->n_participants = group->n_victims = 0;
}

void cl_recurrent_abort(cl_group *group, const cl_step *step)
{
    (void)step;
    cl_sequences *sequences = &group->sequences;
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_runs *pending = &group->participants[m].pending;
        cl_sequences_release_runs(sequences, pending->items, pending->n);
    }
    release_transits(group);
    if (!group->is_written) cl_window_restore(group);
    for (uint32_t m = group->n_participants; m-- > 0;)
        if (group->participants[m].is_new)
            cl_sequences_drop_if_empty(sequences, group->participants[m].slot);
    if (!group->is_written || group->n_victims == 0)
        sequences->cells.pools[0] = group->old_pools[0];
    group->n_participants = group->n_victims = 0;
}
