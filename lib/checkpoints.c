/*
 * checkpoints.c: holding, sharing, thinning out and returning.
 *
 * A checkpoint's slot is counted like a cell: by the sequences that have it, and by nobody else. Whenever
 * a count may have fallen to 0, collect_dead gives back what such slots hold. Slots are few, so looking at
 * all of them costs little; a memory whose groups need no checkpoints has none, and every call here
 * returns at once.
 */
#include "checkpoints.h"

#include <string.h>

#include "error.h"

/* ---- life cycle ------------------------------------------------------------------------------ */

bool cl_checkpoints_measure(uint32_t n, uint32_t n_groups, size_t *bytes)
{
    size_t total = 0, cells;
    if (n == 0) {
        *bytes = 0;
        return true;
    }
    return cl_arena_add(&total, (size_t)n * n_groups, sizeof(cl_pin)) &&
           cl_arena_add(&total, n, sizeof(bool)) && cl_arena_add(&total, n, sizeof(uint32_t)) &&
           cl_arena_add(&total, n, sizeof(uint32_t)) &&
           cl_arena_add(&total, (size_t)n * n_groups, sizeof(cl_runs)) &&
           cl_cells_measure(cl_cells_blocks(n), false, &cells) &&
           cl_checked_add(total, cells, bytes);
}

/* Bytes of the arrays, without the cells. */
static size_t array_bytes(uint32_t n, uint32_t n_groups)
{
    size_t total = 0;
    (void)cl_arena_add(&total, (size_t)n * n_groups, sizeof(cl_pin));
    (void)cl_arena_add(&total, n, sizeof(bool));
    (void)cl_arena_add(&total, n, sizeof(uint32_t));
    (void)cl_arena_add(&total, n, sizeof(uint32_t));
    (void)cl_arena_add(&total, (size_t)n * n_groups, sizeof(cl_runs));
    return total;
}

bool cl_checkpoints_create(cl_checkpoints *checkpoints, uint32_t n, uint32_t interval,
                           cl_group *groups, uint32_t n_groups, cl_alloc *alloc)
{
    memset(checkpoints, 0, sizeof *checkpoints);
    checkpoints->sequences.alloc = alloc;
    checkpoints->sequences.rule.n_pools = 1;
    checkpoints->groups = groups;
    checkpoints->n_groups = n_groups;
    checkpoints->interval = interval;
    cl_sequence_table_init(&checkpoints->sequences.table);
    if (n == 0) return true;
    cl_arena arena = {NULL, array_bytes(n, n_groups), 0};
    arena.memory = cl_alloc_get(alloc, CELLAR_BYTES_CELLS, arena.size);
    if (!arena.memory) return false;
    memset(arena.memory, 0, arena.size);
    checkpoints->pins = cl_arena_take(&arena, (size_t)n * n_groups, sizeof(cl_pin));
    checkpoints->is_live = cl_arena_take(&arena, n, sizeof(bool));
    checkpoints->suspended = cl_arena_take(&arena, n, sizeof(uint32_t));
    checkpoints->planned = cl_arena_take(&arena, n, sizeof(uint32_t));
    checkpoints->planned_lists = cl_arena_take(&arena, (size_t)n * n_groups, sizeof(cl_runs));
    checkpoints->n = n;
    checkpoints->pool.n = n;
    return cl_cells_create(&checkpoints->sequences.cells, &checkpoints->pool, 1, false, alloc);
}

void cl_checkpoints_destroy(cl_checkpoints *checkpoints)
{
    cl_alloc *alloc = checkpoints->sequences.alloc;
    if (!alloc) return;
    for (uint32_t i = 0; i < checkpoints->n * checkpoints->n_groups; i++)
        cl_runs_free(&checkpoints->pins[i].runs, alloc);
    for (uint32_t i = 0; i < checkpoints->n * checkpoints->n_groups; i++)
        cl_runs_free(&checkpoints->planned_lists[i], alloc);
    cl_alloc_put(alloc, CELLAR_BYTES_CELLS, checkpoints->pins,
                 array_bytes(checkpoints->n, checkpoints->n_groups));
    cl_sequence_table_free(&checkpoints->sequences.table, alloc);
    cl_cells_destroy(&checkpoints->sequences.cells, alloc);
}

/* ---- what a checkpoint holds ------------------------------------------------------------------ */

static cl_pin *pin_of(const cl_checkpoints *checkpoints, uint32_t checkpoint, uint32_t group)
{
    return &checkpoints->pins[(size_t)checkpoint * checkpoints->n_groups + group];
}

/* A group that can be cut off anywhere needs nothing. */
static bool needs_pin(const cl_group *group)
{
    return group->kind == CELLAR_LAYER_RECURRENT || cl_group_has_window(group);
}

/* Let go of everything that a checkpoint holds. */
static void release_pins(cl_checkpoints *checkpoints, uint32_t checkpoint)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_pin *pin = pin_of(checkpoints, checkpoint, g);
        bool is_taken = checkpoints->suspended[checkpoint] >> g & 1;
        for (uint32_t i = 0; i < pin->runs.n && !is_taken; i++)
            cl_cells_release(&checkpoints->groups[g].sequences.cells, pin->runs.items[i].cell,
                             pin->runs.items[i].len);
        pin->runs.n = 0;
        pin->lost = 0;
    }
    checkpoints->is_live[checkpoint] = false;
    checkpoints->suspended[checkpoint] = 0;
}

/* Give back what checkpoints hold that no sequence has any more. */
static void collect_dead(cl_checkpoints *checkpoints)
{
    for (uint32_t c = 0; c < checkpoints->n; c++)
        if (checkpoints->is_live[c] && checkpoints->sequences.cells.refs[c] == 0)
            release_pins(checkpoints, c);
}

/*
 * What a query at n sees of a list: the sinks, and from the window's first position on. Appended to
 * `out`, which has room.
 */
static void append_seen(const cl_group *group, const cl_runs *runs, int64_t n, cl_runs *out)
{
    int64_t first = group->kind == CELLAR_LAYER_RECURRENT ? n - 1
                                                          : cl_window_first(&group->window, n);
    int64_t n_sinks = group->window.n_sinks < first ? group->window.n_sinks : first;
    for (uint32_t i = 0; i < runs->n; i++) {
        cl_run part;
        if (n_sinks > 0 && cl_run_clip(&runs->items[i], 0, n_sinks, &part))
            cl_runs_append(out, part);
        if (cl_run_clip(&runs->items[i], first, n, &part)) cl_runs_append(out, part);
    }
}

static void hold_runs(cl_group *group, const cl_runs *runs)
{
    for (uint32_t i = 0; i < runs->n; i++)
        cl_cells_hold(&group->sequences.cells, runs->items[i].cell, runs->items[i].len);
}

/* Fill in what a checkpoint at n holds of a sequence; the lists have room. */
static void fill_pins(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_seq seq,
                      cellar_pos n)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        cl_pin *pin = pin_of(checkpoints, checkpoint, g);
        pin->runs.n = 0;
        pin->lost = 0;
        if (!needs_pin(group)) continue;
        append_seen(group, cl_group_runs(group, seq), n, &pin->runs);
        hold_runs(group, &pin->runs);
        if (cl_group_has_window(group)) {
            int64_t first = cl_window_first(&group->window, n);
            pin->lost = first > (int64_t)group->window.n_sinks ? (int32_t)first : 0;
        }
    }
    checkpoints->is_live[checkpoint] = true;
    checkpoints->suspended[checkpoint] = 0;
}

/* Could a sequence in this group be cut off at n with nothing missing? */
static bool is_whole(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++)
        if (needs_pin(&checkpoints->groups[g]) &&
            cl_group_continue_at(&checkpoints->groups[g], seq, n) != n)
            return false;
    return true;
}

/* ---- which one should go ---------------------------------------------------------------------- */

/*
 * What losing a checkpoint costs a sequence: the gap it leaves between its neighbours, in proportion to
 * the distance from the sequence's end. Small is cheap.
 */
static double cost_of(const cl_runs *list, uint32_t run, uint32_t in_run)
{
    const cl_run *items = list->items;
    int64_t pos = items[run].pos + (int64_t)in_run, end = cl_run_last(&items[list->n - 1]);
    int64_t before = in_run > 0 ? pos - 1 : run > 0 ? cl_run_last(&items[run - 1]) : -1;
    int64_t after = in_run + 1 < items[run].len ? pos + 1
                    : run + 1 < list->n         ? items[run + 1].pos
                                                : pos + 1;
    return (double)(after - before) / (double)(end - before);
}

/* Does a checkpoint hold cells of a pool of a group that nobody took yet? */
static bool holds_cells(const cl_checkpoints *checkpoints, uint32_t checkpoint, uint32_t group,
                        uint32_t pool)
{
    const cl_pin *pin = pin_of(checkpoints, checkpoint, group);
    if (!checkpoints->is_live[checkpoint] || (checkpoints->suspended[checkpoint] >> group & 1) ||
        pin->runs.n == 0)
        return false;
    const cl_cells *cells = &checkpoints->groups[group].sequences.cells;
    return cells->pool_of[pin->runs.items[0].cell / CL_BLOCK] == pool;
}

/* The cheapest of those that `is_eligible`; ties: the smallest position, then slot. */
typedef struct choice {
    const cl_checkpoints *checkpoints;
    uint32_t group, pool; /* group UINT32_MAX: any that is live and not suspended */
    uint32_t best;
    double cost;
    int64_t pos;
} choice;

static void consider(choice *c, const cl_runs *list, uint32_t run, uint32_t in_run)
{
    uint32_t checkpoint = list->items[run].cell + in_run;
    bool is_eligible = c->group == UINT32_MAX
                           ? c->checkpoints->is_live[checkpoint] &&
                                 c->checkpoints->suspended[checkpoint] == 0
                           : holds_cells(c->checkpoints, checkpoint, c->group, c->pool);
    if (!is_eligible) return;
    double cost = cost_of(list, run, in_run);
    int64_t pos = list->items[run].pos + (int64_t)in_run;
    /* One that the step has taken from already is worth nothing more. */
    if (c->checkpoints->suspended[checkpoint]) cost = 0;
    bool is_better = c->best == CL_NO_CHECKPOINT || cost < c->cost ||
                     (cost == c->cost && (pos < c->pos || (pos == c->pos && checkpoint < c->best)));
    if (!is_better) return;
    c->best = checkpoint;
    c->cost = cost;
    c->pos = pos;
}

static uint32_t choose_least(const cl_checkpoints *checkpoints, uint32_t group, uint32_t pool)
{
    const cl_sequence_table *table = &checkpoints->sequences.table;
    choice c = {checkpoints, group, pool, CL_NO_CHECKPOINT, 0, 0};
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_runs *list = &table->items[slot].runs;
        if (table->items[slot].id < 0) continue;
        for (uint32_t r = 0; r < list->n; r++)
            for (uint32_t i = 0; i < list->items[r].len; i++)
                consider(&c, list, r, i);
    }
    return c.best;
}

uint32_t cl_checkpoints_least(const cl_checkpoints *checkpoints, uint32_t group, uint32_t pool)
{
    return choose_least(checkpoints, group, pool);
}

/* Take a checkpoint out of every list. Lists have room for a cut: see add_to_list. */
static void drop_everywhere(cl_checkpoints *checkpoints, uint32_t checkpoint)
{
    cl_sequence_table *table = &checkpoints->sequences.table;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        for (uint32_t r = 0; r < sequence->runs.n; r++) {
            const cl_run *run = &sequence->runs.items[r];
            if (checkpoint < run->cell || checkpoint >= run->cell + run->len) continue;
            int64_t pos = run->pos + (int64_t)(checkpoint - run->cell);
            cl_sequences_remove(&checkpoints->sequences, sequence->id, (cl_range){pos, pos + 1});
            break;
        }
    }
    collect_dead(checkpoints);
}

/* ---- making one ------------------------------------------------------------------------------- */

static uint32_t count_entries(const cl_runs *list)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < list->n; r++)
        n += list->items[r].len;
    return n;
}

/* Room for n_more entries in a sequence's list, and for a cut at any of its entries later. */
static cellar_status reserve_list(cl_checkpoints *checkpoints, cellar_seq seq, uint32_t n_more,
                                  cellar_error *error)
{
    uint32_t slot;
    CL_TRY(cl_sequences_add(&checkpoints->sequences, seq, &slot, error));
    const cl_runs *list = &checkpoints->sequences.table.items[slot].runs;
    uint64_t n = count_entries(list) + n_more + 3ull;
    cellar_status status = cl_sequences_reserve(&checkpoints->sequences, slot, n, error);
    if (status != CELLAR_OK) cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
    return status;
}

/* A free slot, made by forgetting the cheapest checkpoint if need be; CL_NO_CHECKPOINT: none. */
static uint32_t free_slot(cl_checkpoints *checkpoints, bool may_drop)
{
    cl_cells *cells = &checkpoints->sequences.cells;
    if (cells->n_free == 0) {
        uint32_t least = may_drop ? choose_least(checkpoints, UINT32_MAX, 0) : CL_NO_CHECKPOINT;
        if (least == CL_NO_CHECKPOINT) return CL_NO_CHECKPOINT;
        drop_everywhere(checkpoints, least);
        checkpoints->n_dropped++;
    }
    cl_request request = {0, 0, CL_NO_CELL, 1};
    cl_stretch stretch;
    (void)cl_placement_choose(cells, &request, &stretch);
    return stretch.cell;
}

/* Room in the lists of a checkpoint for what it will hold of a sequence. */
static cellar_status reserve_pins(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_seq seq,
                                  cellar_error *error)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        if (!needs_pin(group)) continue;
        uint64_t n = cl_group_runs(group, seq)->n + 1ull;
        if (!cl_runs_reserve(&pin_of(checkpoints, checkpoint, g)->runs, group->sequences.alloc, n))
            return cl_error_no_memory(error, "a checkpoint", (size_t)n * sizeof(cl_run));
    }
    return CELLAR_OK;
}

/*
 * Put a counted checkpoint into a sequence's list, in place of one that stands there. False: the list has
 * gone meanwhile.
 */
static bool add_to_list(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                        uint32_t checkpoint)
{
    uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, seq);
    if (slot == CL_NO_SLOT) return false;
    int32_t pos = n - 1;
    cl_run run = {.pos = pos, .cell = checkpoint, .len = 1, .step = 1};
    run.shift = pos - checkpoints->sequences.cells.stored_pos[checkpoint];
    cl_sequences_replace(&checkpoints->sequences, slot, (cl_range){pos, pos + 1LL}, &run, 1);
    return true;
}

/* Count a new checkpoint's first holder. */
static void take_slot(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_pos n)
{
    cl_cells *cells = &checkpoints->sequences.cells;
    cl_cells_take(cells, checkpoint, 1, 1);
    cells->stored_pos[checkpoint] = n - 1;
    cells->token[checkpoint] = -1;
}

/* Is there one at n already? */
static bool has_one_at(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n)
{
    cellar_pos at;
    return cl_checkpoints_find(checkpoints, seq, n, &at) != CL_NO_CHECKPOINT && at == n;
}

cellar_status cl_checkpoints_make(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                                  cellar_error *error)
{
    if (checkpoints->n == 0 || has_one_at(checkpoints, seq, n)) return CELLAR_OK;
    CL_TRY(reserve_list(checkpoints, seq, 1, error));
    uint32_t checkpoint = free_slot(checkpoints, true);
    cellar_status status = CELLAR_OK;
    if (checkpoint == CL_NO_CHECKPOINT)
        status = cl_error_set(error, CELLAR_FULL, CELLAR_REASON_NO_CELLS, 1,
                              "no room for a checkpoint of sequence %d", (int)seq);
    else
        status = reserve_pins(checkpoints, checkpoint, seq, error);
    if (status != CELLAR_OK) {
        uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, seq);
        cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
        return status;
    }
    take_slot(checkpoints, checkpoint, n);
    fill_pins(checkpoints, checkpoint, seq, n);
    (void)add_to_list(checkpoints, seq, n, checkpoint);
    return CELLAR_OK;
}

/* ---- finding and returning -------------------------------------------------------------------- */

uint32_t cl_checkpoints_find(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                             cellar_pos *at)
{
    *at = 0;
    if (checkpoints->n == 0) return CL_NO_CHECKPOINT;
    const cl_runs *list = cl_sequence_table_runs(&checkpoints->sequences.table, seq);
    uint32_t i = cl_runs_find(list, (int64_t)n - 1);
    if (i == list->n || list->items[i].pos > (int64_t)n - 1) {
        if (i == 0) return CL_NO_CHECKPOINT;
        i--;
    }
    const cl_run *run = &list->items[i];
    int64_t pos = cl_run_last(run) < (int64_t)n - 1 ? cl_run_last(run) : (int64_t)n - 1;
    uint32_t checkpoint = run->cell + (uint32_t)(pos - run->pos);
    if (checkpoints->suspended[checkpoint] != 0) return CL_NO_CHECKPOINT;
    *at = (cellar_pos)(pos + 1);
    return checkpoint;
}

/* Does a sequence need the checkpoint in this group to go on at n? */
static bool returns(const cl_group *group, cellar_seq seq, cellar_pos n)
{
    return needs_pin(group) && cl_group_continue_at(group, seq, n) != n;
}

/* Where a checkpoint stands in a sequence's list, + 1. */
static cellar_pos position_of(const cl_checkpoints *checkpoints, cellar_seq seq,
                              uint32_t checkpoint)
{
    const cl_runs *list = cl_sequence_table_runs(&checkpoints->sequences.table, seq);
    for (uint32_t r = 0; r < list->n; r++) {
        const cl_run *run = &list->items[r];
        if (checkpoint >= run->cell && checkpoint < run->cell + run->len)
            return run->pos + (cellar_pos)(checkpoint - run->cell) + 1;
    }
    return 0;
}

cellar_status cl_checkpoints_prepare_return(cl_checkpoints *checkpoints, cellar_seq seq,
                                            uint32_t checkpoint, cellar_error *error)
{
    cellar_pos n = position_of(checkpoints, seq, checkpoint);
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        if (!returns(group, seq, n)) continue;
        bool is_new = cl_sequence_table_find(&group->sequences.table, seq) == CL_NO_SLOT;
        uint32_t slot;
        CL_TRY(cl_sequences_add(&group->sequences, seq, &slot, error));
        uint64_t more = pin_of(checkpoints, checkpoint, g)->runs.n + 2ull;
        cellar_status status = cl_sequences_reserve(&group->sequences, slot, more, error);
        if (is_new && status != CELLAR_OK) cl_sequences_drop_if_empty(&group->sequences, slot);
        CL_TRY(status);
    }
    return CELLAR_OK;
}

void cl_checkpoints_return(cl_checkpoints *checkpoints, uint32_t g, cellar_seq seq,
                           uint32_t checkpoint)
{
    cl_group *group = &checkpoints->groups[g];
    const cl_pin *pin = pin_of(checkpoints, checkpoint, g);
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, seq);
    if (slot == CL_NO_SLOT) return;
    hold_runs(group, &pin->runs);
    cl_sequences_replace(&group->sequences, slot, (cl_range){0, INT64_MAX}, pin->runs.items,
                         pin->runs.n);
    group->sequences.table.items[slot].lost = pin->lost;
}

/* ---- following the operations on sequences ----------------------------------------------------- */

cellar_status cl_checkpoints_prepare_copy(cl_checkpoints *checkpoints, cellar_seq from,
                                          cellar_seq to, cl_range range, cellar_error *error)
{
    if (checkpoints->n == 0 || range.p0 > 0) return CELLAR_OK;
    uint32_t n = count_entries(cl_sequence_table_runs(&checkpoints->sequences.table, from));
    if (n == 0) return CELLAR_OK;
    CL_TRY(reserve_list(checkpoints, to, n, error));
    cellar_status status = cl_sequences_prepare_copy(&checkpoints->sequences, from, to, range,
                                                     error);
    if (status != CELLAR_OK) {
        uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, to);
        cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
    }
    return status;
}

void cl_checkpoints_copy(cl_checkpoints *checkpoints, cellar_seq from, cellar_seq to,
                         cl_range range)
{
    if (checkpoints->n == 0) return;
    uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, to);
    /* Only what has the same beginning can be returned to in the same way. */
    if (range.p0 == 0) {
        cl_sequences_copy(&checkpoints->sequences, from, to, range);
        slot = cl_sequence_table_find(&checkpoints->sequences.table, to);
    }
    cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
    collect_dead(checkpoints);
}

void cl_checkpoints_forget(cl_checkpoints *checkpoints, cellar_seq seq, int64_t p0)
{
    if (p0 == INT64_MAX) return; /* nothing lies behind it */
    cl_checkpoints_drop(checkpoints, seq, (cl_range){p0 < 0 ? 1 : p0 + 1, INT64_MAX});
}

void cl_checkpoints_drop(cl_checkpoints *checkpoints, cellar_seq seq, cl_range range)
{
    if (checkpoints->n == 0) return;
    cl_range entries = {range.p0 > 0 ? range.p0 - 1 : 0,
                        range.p1 == INT64_MAX ? INT64_MAX : range.p1 - 1};
    if (entries.p0 >= entries.p1) return;
    cl_sequences_remove(&checkpoints->sequences, seq, entries);
    collect_dead(checkpoints);
}

void cl_checkpoints_keep(cl_checkpoints *checkpoints, cellar_seq seq)
{
    if (checkpoints->n == 0) return;
    cl_sequences_keep(&checkpoints->sequences, seq);
    collect_dead(checkpoints);
}

void cl_checkpoints_clear(cl_checkpoints *checkpoints)
{
    if (checkpoints->n == 0) return;
    cl_sequences_clear(&checkpoints->sequences);
    collect_dead(checkpoints);
}

/* ---- a step ------------------------------------------------------------------------------------ */

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
        CL_TRY(reserve_list(checkpoints, step->members[step->member_of[k]].id,
                            checkpoints->n_planned, error));
    uint32_t m = step->member_of[step->member_begin[token]];
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        if (!needs_pin(group)) continue;
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
}

cellar_status cl_checkpoints_reserve(cl_checkpoints *checkpoints, const cl_step *step,
                                     cellar_error *error)
{
    for (uint32_t i = 0; i < checkpoints->n_planned; i++)
        CL_TRY(reserve_planned(checkpoints, step, i, error));
    return CELLAR_OK;
}

/* Forget all that the step has taken from. */
static void drop_suspended(cl_checkpoints *checkpoints)
{
    for (uint32_t c = 0; c < checkpoints->n; c++) {
        if (!checkpoints->is_live[c] || checkpoints->suspended[c] == 0) continue;
        drop_everywhere(checkpoints, c);
        checkpoints->n_dropped++;
    }
}

/* The step's lists have the room that was reserved: give them to the slot. */
static void exchange_lists(cl_checkpoints *checkpoints, uint32_t i, uint32_t checkpoint)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_runs *reserved = planned_list(checkpoints, i, g);
        cl_runs *its = &pin_of(checkpoints, checkpoint, g)->runs;
        cl_runs spare = *its;
        *its = *reserved;
        *reserved = spare;
    }
}

static void make_planned(cl_checkpoints *checkpoints, const cl_step *step, uint32_t i)
{
    uint32_t token = checkpoints->planned[i], begin = step->member_begin[token];
    cellar_pos n = step->positions[token] + 1;
    cellar_seq first = step->members[step->member_of[begin]].id;
    if (!is_whole(checkpoints, first, n) || has_one_at(checkpoints, first, n)) return;
    uint32_t checkpoint = free_slot(checkpoints, true);
    if (checkpoint == CL_NO_CHECKPOINT) return;
    take_slot(checkpoints, checkpoint, n);
    exchange_lists(checkpoints, i, checkpoint);
    fill_pins(checkpoints, checkpoint, first, n);
    for (uint32_t k = begin; k < step->member_begin[token + 1]; k++) {
        cl_cells_hold(&checkpoints->sequences.cells, checkpoint, 1);
        if (!add_to_list(checkpoints, step->members[step->member_of[k]].id, n, checkpoint))
            cl_cells_release(&checkpoints->sequences.cells, checkpoint, 1);
    }
    cl_cells_release(&checkpoints->sequences.cells, checkpoint, 1); /* the one it was taken with */
    collect_dead(checkpoints);
}

void cl_checkpoints_commit(cl_checkpoints *checkpoints, const cl_step *step)
{
    drop_suspended(checkpoints);
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
