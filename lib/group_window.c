/*
 * group_window.c: room behind a sliding window.
 *
 * Cells that have fallen out of every query's sight stay where they are while there is room: a sequence
 * can then still be rewound or forked there. When a step needs cells, they are given up, the farthest
 * behind its window first; after them go checkpoints. Two things are out of the question: cells that the
 * next token of a sequence sees if the step is aborted, and sinks.
 *
 * What a step takes away is written down as victims, so that an abort can give it back. It cannot once
 * rows were stored in those cells; then a sequence has lost some of its past, but never what its next
 * token sees. Tokens of this very step that fall out of sight of its later micro-batches are given up
 * too (a participant's kept_from); for them there is nothing to give back. What an abort would need stays
 * until the commit, although it is older than those: then it goes as well (cl_window_drop_overrun), for a
 * sequence has no gap behind its sinks, and nobody could go on there.
 */
#include <assert.h>
#include <string.h>

#include "checkpoints.h"
#include "error.h"
#include "group.h"

/* ---- what can be given up -------------------------------------------------------------------- */

/* Something whose oldest cell is `age` positions behind what its next query sees. */
typedef struct candidate {
    int64_t age;     /* > 0 */
    int64_t ahead;   /* how much farther the step has come than what an abort would go back to */
    uint32_t index;  /* slot of a sequence; or participant */
    bool is_pending; /* tokens of this step */
    uint32_t victim; /* the last one that was taken from this sequence; NO_VICTIM: none */
} candidate;

#define NO_VICTIM UINT32_MAX

/* The position of the next query behind a last token: shared positions are possible in 2-D. */
static int64_t next_query(const cl_group *group, int64_t last)
{
    return group->sequences.cells.points ? last : last + 1;
}

/* The oldest run of a list that can go, clipped to what can; false: none. `from`: nothing below. */
static bool oldest_run(const cl_group *group, const cl_runs *runs, int64_t from, int64_t bound,
                       cl_run *out)
{
    int64_t first = group->window.n_sinks > from ? group->window.n_sinks : from;
    uint32_t i = cl_runs_find(runs, first);
    return i < runs->n && cl_run_clip(&runs->items[i], first, bound, out);
}

/*
 * Up to where what a sequence holds can be given up: behind that, its next query sees it. The end of what
 * it was told may be lost, too.
 */
static int64_t bound_of_sequence(const cl_group *group, uint32_t slot)
{
    const cl_sequence *sequence = &group->sequences.table.items[slot];
    int64_t last = cl_lost_end(&sequence->lost) - 1, n = sequence->runs.n;
    if (n > 0 && cl_run_last(&sequence->runs.items[n - 1]) > last)
        last = cl_run_last(&sequence->runs.items[n - 1]);
    return last < 0 ? 0 : cl_window_first(&group->window, next_query(group, last));
}

/* The same for tokens of the step. */
static int64_t bound_of_pending(const cl_group *group, uint32_t m)
{
    const cl_runs *runs = &group->participants[m].pending;
    if (runs->n == 0) return 0;
    return cl_window_first(&group->window,
                           next_query(group, cl_run_last(&runs->items[runs->n - 1])));
}

/* Find a candidate's oldest run and its age; its index, kind and `ahead` are set. */
static bool find_oldest(const cl_group *group, candidate *out, cl_run *run)
{
    const cl_runs *runs;
    int64_t from = 0, bound;
    if (out->is_pending) {
        runs = &group->participants[out->index].pending;
        from = group->participants[out->index].kept_from;
        bound = bound_of_pending(group, out->index);
    } else {
        runs = &group->sequences.table.items[out->index].runs;
        bound = bound_of_sequence(group, out->index);
    }
    if (!oldest_run(group, runs, from, bound, run)) return false;
    out->age = bound + out->ahead - run->pos;
    return true;
}

/* ---- the oldest first: a heap ---------------------------------------------------------------- */

static void sink(candidate *heap, uint32_t at, uint32_t n)
{
    candidate item = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1].age > heap[child].age) child++;
        if (heap[child].age <= item.age) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
}

/* The first of candidates [n], which stand in the order of their slots, at or behind a slot. */
static uint32_t find_slot(const candidate *candidates, uint32_t n, uint32_t slot)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (candidates[middle].index < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * What is taken from a sequence piece by piece becomes one victim a run, also over several calls: find the
 * last one of each candidate. Candidates [n] are sequences in the order of their slots.
 */
static void find_last_victims(const cl_group *group, candidate *candidates, uint32_t n)
{
    for (uint32_t v = 0; v < group->n_victims; v++) {
        if (group->victims[v].is_checkpoint) continue;
        uint32_t at = find_slot(candidates, n, group->victims[v].slot);
        if (at < n && candidates[at].index == group->victims[v].slot) candidates[at].victim = v;
    }
}

/*
 * What an abort goes back to is behind where the step has come; ages count from there for both, or tokens
 * of the step would go before older ones of the same sequence. Candidates as above.
 */
static void find_ahead(const cl_group *group, candidate *candidates, uint32_t n)
{
    for (uint32_t m = 0; m < group->n_participants; m++) {
        const cl_participant *participant = &group->participants[m];
        uint32_t at = find_slot(candidates, n, participant->slot);
        if (at == n || candidates[at].index != participant->slot || participant->pending.n == 0)
            continue;
        candidates[at].ahead = bound_of_pending(group, m) -
                               bound_of_sequence(group, participant->slot);
        candidates[at].age += candidates[at].ahead;
    }
}

static uint32_t collect(cl_group *group, uint32_t pool, candidate *heap)
{
    const cl_sequence_table *table = &group->sequences.table;
    uint32_t n = 0;
    cl_run run;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        if (table->items[slot].id < 0 || table->items[slot].pool != pool) continue;
        if (slot == group->spared_slot) continue;
        heap[n] = (candidate){.index = slot, .victim = NO_VICTIM};
        n += find_oldest(group, &heap[n], &run);
    }
    find_last_victims(group, heap, n);
    find_ahead(group, heap, n);
    for (uint32_t m = 0; group->may_reuse && m < group->n_participants; m++) {
        if (table->items[group->participants[m].slot].pool != pool) continue;
        heap[n] = (candidate){.index = m, .is_pending = true, .victim = NO_VICTIM};
        n += find_oldest(group, &heap[n], &run);
    }
    for (uint32_t i = n / 2; i-- > 0;)
        sink(heap, i, n);
    return n;
}

/* ---- giving up ------------------------------------------------------------------------------- */

static void note_victim(cl_group *group, cl_victim victim)
{
    assert(group->n_victims < group->victim_capacity);
    group->victims[group->n_victims++] = victim;
}

/* How many cells of a run go: what is wanted, but none that is younger than the runner-up. */
static uint32_t count_going(const cl_run *run, int64_t age, int64_t runner_up, uint32_t wanted)
{
    if (!run->step) return run->len; /* tokens at one position go together */
    int64_t older = age - runner_up;
    uint32_t n = older < 1 ? 1 : older < run->len ? (uint32_t)older : run->len;
    return n < wanted ? n : wanted;
}

/* Does a run go on where a victim ends? Then they are pieces of one run. */
static bool continues(const cl_victim *victim, const cl_run *run)
{
    return cl_run_touches(&victim->run, run) && run->pos > cl_run_last(&victim->run);
}

/* Take the first n cells of a run out of a sequence; *last is its last victim. */
static void cut_sequence(cl_group *group, uint32_t slot, cl_run run, uint32_t n, uint32_t *last)
{
    cl_sequence *sequence = &group->sequences.table.items[slot];
    int64_t end = run.step ? run.pos + (int64_t)n : run.pos + 1LL;
    uint32_t n_runs = sequence->runs.n, first = cl_runs_cut(&sequence->runs, run.pos);
    cl_victim victim = {.slot = slot, .is_tail = sequence->runs.n > n_runs};
    /* A sink that stays behind alone can belong to those before it that share its position. */
    victim.has_joined_before = first > 0 && cl_runs_join(&sequence->runs, first - 1);
    first -= victim.has_joined_before;
    cl_run_set_len(&run, n);
    if (n == 1) run.step = 1;
    if (*last != NO_VICTIM && continues(&group->victims[*last], &run)) {
        cl_run *taken = &group->victims[*last].run;
        cl_run_set_len(taken, taken->len + n);
    } else {
        *last = group->n_victims;
        victim.was_lost = cl_lost_any(&sequence->lost, run.pos, run.pos + 1LL);
        victim.run = run;
        note_victim(group, victim);
    }
    cl_run *left = &sequence->runs.items[first];
    group->victims[*last].is_head = left->len > n;
    if (left->len == n) {
        cl_runs_erase(&sequence->runs, first, first + 1);
    } else {
        left->pos += (int32_t)n;
        left->cell += n;
        cl_run_set_len(left, left->len - n);
        /* A cell that is left over can belong to those behind it that share its position. */
        group->victims[*last].has_joined = cl_runs_join(&sequence->runs, first + 1);
    }
    cl_lost_add(&sequence->lost, run.pos, end);
}

/*
 * Forget a participant's pending tokens up to position `end`: also those that share a position with the
 * last of them but lie in another run. Returns how many.
 */
static uint32_t cut_pending(cl_group *group, uint32_t m, int64_t end)
{
    cl_participant *participant = &group->participants[m];
    int64_t first = group->window.n_sinks;
    if (participant->kept_from > first) first = participant->kept_from;
    uint32_t n = 0;
    cl_run part;
    for (uint32_t i = cl_runs_find(&participant->pending, first); i < participant->pending.n; i++) {
        if (!cl_run_clip(&participant->pending.items[i], first, end, &part)) break;
        cl_cells_release(&group->sequences.cells, part.cell, part.len);
        n += part.len;
    }
    participant->kept_from = (int32_t)end;
    group->reuses_cells = true;
    return n;
}

/* Give up some of the oldest cells of a candidate. */
static void give_up(cl_group *group, candidate *oldest, int64_t runner_up, uint32_t wanted)
{
    cl_run run;
    if (!find_oldest(group, oldest, &run)) return;
    uint32_t n = count_going(&run, oldest->age, runner_up, wanted);
    if (oldest->is_pending) {
        n = cut_pending(group, oldest->index, run.step ? run.pos + (int64_t)n : run.pos + 1LL);
    } else {
        cut_sequence(group, oldest->index, run, n, &oldest->victim);
        cl_cells_release(&group->sequences.cells, run.cell, n);
    }
    group->n_step_reclaimed += n;
}

uint32_t cl_window_drop_before(cl_group *group, cl_sequence *sequence, int64_t end)
{
    cl_runs *runs = &sequence->runs;
    uint32_t first = cl_runs_cut(runs, group->window.n_sinks), last = cl_runs_cut(runs, end), n = 0;
    for (uint32_t i = first; i < last; i++) {
        cl_lost_add(&sequence->lost, runs->items[i].pos, cl_run_last(&runs->items[i]) + 1LL);
        cl_cells_release(&group->sequences.cells, runs->items[i].cell, runs->items[i].len);
        n += runs->items[i].len;
    }
    if (first < last) cl_runs_erase(runs, first, last);
    cl_runs_mend(runs, first);
    return n;
}

void cl_window_drop_overrun(cl_group *group, const cl_participant *participant)
{
    cl_sequence *sequence = &group->sequences.table.items[participant->slot];
    int64_t n_sinks = group->window.n_sinks, end = participant->kept_from;
    if (end <= n_sinks) return;
    /* All that is committed stands below `end`. */
    group->n_step_reclaimed += cl_window_drop_before(group, sequence, INT64_MAX);
    cl_run part;
    for (uint32_t i = 0; i < participant->pending.n; i++)
        if (cl_run_clip(&participant->pending.items[i], n_sinks, end, &part))
            cl_lost_add(&sequence->lost, part.pos, cl_run_last(&part) + 1LL);
}

uint64_t cl_window_count_taken(const cl_group *group)
{
    uint64_t n = 0;
    for (uint32_t v = 0; v < group->n_victims; v++)
        if (!group->victims[v].is_checkpoint) n += group->victims[v].run.len;
    return n;
}

void cl_window_suspend(cl_group *group, uint32_t checkpoint)
{
    const cl_pin *pin = cl_checkpoints_pin(group->checkpoints, checkpoint, group->index);
    for (uint32_t i = 0; i < pin->runs.n; i++) {
        note_victim(
            group,
            (cl_victim){.is_checkpoint = true, .slot = checkpoint, .run = pin->runs.items[i]});
        cl_cells_release(&group->sequences.cells, pin->runs.items[i].cell, pin->runs.items[i].len);
    }
    cl_checkpoints_suspend(group->checkpoints, checkpoint, group->index);
}

/* Give up cells that no query sees until `goal` of a pool are free, or there are none. */
static void reclaim_cells(cl_group *group, uint32_t pool, uint32_t goal)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    candidate *heap = (candidate *)(void *)group->reclaim_arena.memory;
    uint32_t n = collect(group, pool, heap);
    while (n > 0 && its->n_free < goal) {
        int64_t runner_up = n > 1 ? heap[1].age : 0;
        if (n > 2 && heap[2].age > runner_up) runner_up = heap[2].age;
        give_up(group, &heap[0], runner_up, goal - its->n_free);
        cl_run run;
        if (!find_oldest(group, &heap[0], &run)) heap[0] = heap[--n];
        sink(heap, 0, n);
    }
}

uint32_t cl_window_take_checkpoints(cl_group *group, uint32_t pool, uint32_t missing)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    uint32_t goal = its->n_free + missing;
    while (its->n_free < goal && group->checkpoints) {
        uint32_t least = cl_checkpoints_least(group->checkpoints, group->index, pool);
        if (least == CL_NO_CHECKPOINT) break;
        cl_window_suspend(group, least);
    }
    return its->n_free < goal ? goal - its->n_free : 0;
}

uint32_t cl_window_reclaim(cl_group *group, uint32_t pool, uint32_t missing)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    uint32_t goal = its->n_free + missing;
    reclaim_cells(group, pool, goal);
    missing = its->n_free < goal ? goal - its->n_free : 0;
    return missing > 0 && group->may_reuse ? cl_window_take_checkpoints(group, pool, missing)
                                           : missing;
}

/* ---- room to write it down, and giving back -------------------------------------------------- */

static uint64_t count_pins(const cl_group *group)
{
    uint64_t n = 0;
    const cl_checkpoints *checkpoints = group->checkpoints;
    for (uint32_t c = 0; checkpoints && c < checkpoints->n; c++)
        if (checkpoints->is_live[c]) n += cl_checkpoints_pin(checkpoints, c, group->index)->runs.n;
    return n;
}

/* May the step need more cells than some pool has? */
static bool may_be_short(const cl_group *group, const cl_step *step)
{
    for (uint32_t p = 0; p < group->sequences.cells.n_pools; p++)
        if (step->n_tokens > group->sequences.cells.pools[p].n_free) return true;
    return false;
}

static cellar_status reserve_victims(cl_group *group, uint64_t n, cellar_error *error)
{
    void *victims = group->victims;
    bool ok = cl_alloc_reserve(group->sequences.alloc, CELLAR_BYTES_STEP, &victims,
                               &group->victim_capacity, n, sizeof(cl_victim));
    group->victims = victims;
    return ok ? CELLAR_OK : cl_error_no_memory(error, "making room", (size_t)n * sizeof(cl_victim));
}

cellar_status cl_window_reserve_pins(cl_group *group, cellar_error *error)
{
    return reserve_victims(group, count_pins(group), error);
}

cellar_status cl_window_reserve(cl_group *group, const cl_step *step, cellar_error *error)
{
    if (!may_be_short(group, step)) return CELLAR_OK;
    cl_sequences *sequences = &group->sequences;
    uint64_t n_victims = (uint64_t)step->n_tokens + count_pins(group);
    for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++) {
        if (sequences->table.items[slot].id < 0) continue;
        uint64_t n_runs = sequences->table.items[slot].runs.n;
        n_victims += n_runs + 1;
        CL_TRY(cl_sequences_reserve_lost(sequences, slot, n_runs + 2, error));
        CL_TRY(
            cl_sequences_reserve(sequences, slot, 3, error)); /* a cut at the sinks, one behind */
    }
    CL_TRY(reserve_victims(group, n_victims, error));
    size_t total = 0, n = (size_t)sequences->table.n_slots + 2 * (size_t)step->n_members;
    if (!cl_arena_add(&total, n, sizeof(candidate)) ||
        !cl_arena_reset(&group->reclaim_arena, sequences->alloc, total))
        return cl_error_no_memory(error, "making room behind a window", total);
    return CELLAR_OK;
}

static void hold_again(cl_cells *cells, const cl_run *run)
{
    for (uint32_t i = 0; i < run->len; i++) {
        if (cells->refs[run->cell + i] == 0)
            cl_cells_take(cells, run->cell + i, 1, 1);
        else
            cl_cells_hold(cells, run->cell + i, 1);
    }
}

/*
 * Run `at` is a victim that was put back: make it one with what stayed of its run, and nothing else. Where
 * tokens share a position it could touch others, and lists that say the same can be cut in two ways.
 */
static void attach(cl_runs *runs, uint32_t at, const cl_victim *victim)
{
    cl_run *run = &runs->items[at];
    if (victim->has_joined) { /* the cell that was left over comes back from the run behind */
        cl_run *behind = run + 1;
        cl_run_set_len(run, run->len + 1);
        behind->cell++;
        cl_run_set_len(behind, behind->len - 1);
        if (behind->len == 1) behind->step = 1;
    } else if (victim->is_head) {
        cl_runs_join(runs, at + 1);
    }
    if (victim->has_joined_before) { /* the same from the run before */
        cl_run *before = run - 1;
        cl_run_set_len(before, before->len - 1);
        if (before->len == 1) before->step = 1;
        run->pos--;
        run->cell--;
        cl_run_set_len(run, run->len + 1);
    } else if (victim->is_tail) {
        cl_runs_join(runs, at);
    }
}

void cl_window_keep_label(cl_group *group, uint32_t cell)
{
    const cl_cells *cells = &group->sequences.cells;
    if (group->n_victims == 0) return; /* it was free before the step: it said nothing */
    cl_label *label = &group->labels[group->n_labels++];
    *label = (cl_label){
        .cell = cell, .stored_pos = cells->stored_pos[cell], .token = cells->token[cell]};
    if (cells->points) label->point = cells->points[cell];
}

/* Backwards: a cell that was taken twice gets its first label back. */
static void restore_labels(cl_group *group)
{
    cl_cells *cells = &group->sequences.cells;
    while (group->n_labels > 0) {
        const cl_label *label = &group->labels[--group->n_labels];
        cells->stored_pos[label->cell] = label->stored_pos;
        cells->token[label->cell] = label->token;
        if (cells->points) cells->points[label->cell] = label->point;
    }
}

void cl_window_restore(cl_group *group)
{
    restore_labels(group);
    while (group->n_victims > 0) {
        const cl_victim *victim = &group->victims[--group->n_victims];
        hold_again(&group->sequences.cells, &victim->run);
        if (victim->is_checkpoint) {
            cl_checkpoints_resume(group->checkpoints, victim->slot, group->index);
            continue;
        }
        cl_sequence *sequence = &group->sequences.table.items[victim->slot];
        uint32_t at = cl_runs_find(&sequence->runs, victim->run.pos);
        cl_runs_insert(&sequence->runs, at, &victim->run, 1);
        attach(&sequence->runs, at, victim);
        cl_lost_remove(&sequence->lost, victim->run.pos + (victim->was_lost ? 1LL : 0LL),
                       cl_run_last(&victim->run) + 1LL);
    }
}

/* ---- outside of a step ----------------------------------------------------------------------- */

void cl_window_forget_step(cl_group *group)
{
    group->n_victims = group->n_labels = 0;
    group->n_step_reclaimed = 0;
}

cellar_status cl_window_reserve_give_up(cl_group *group, uint32_t n, cellar_error *error)
{
    cl_step nobody = {.n_tokens = n};
    group->may_reuse = false; /* no step is open */
    return cl_window_reserve(group, &nobody, error);
}

uint32_t cl_window_give_up(cl_group *group, uint32_t pool, uint32_t n, uint32_t spared)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    uint32_t goal = its->n_free + n;
    group->spared_slot = spared;
    reclaim_cells(group, pool, goal);
    group->spared_slot = CL_NO_SLOT;
    return its->n_free < goal ? goal - its->n_free : 0;
}

int64_t cl_window_first_seen(const cl_group *group, int64_t end)
{
    return end > 0 ? cl_window_first(&group->window, next_query(group, end - 1)) : 0;
}

cl_window_cut cl_window_start_cut(const cl_group *group, uint32_t slot)
{
    return (cl_window_cut){slot, NO_VICTIM, bound_of_sequence(group, slot)};
}

uint32_t cl_window_cut_oldest(cl_group *group, cl_window_cut *cut, cl_run run, uint32_t n)
{
    cl_run part;
    if (!cl_run_clip(&run, run.pos, cut->bound, &part)) return 0;
    if (n > part.len) n = part.len;
    cut_sequence(group, cut->slot, part, n, &cut->victim);
    cl_cells_release(&group->sequences.cells, part.cell, n);
    group->n_step_reclaimed += n;
    return n;
}

void cl_window_keep_given_up(cl_group *group)
{
    if (group->n_victims > 0) group->n_reclaimed += group->n_step_reclaimed;
    group->n_victims = 0;
}

void cl_window_take_back(cl_group *group)
{
    cl_window_restore(group);
}
