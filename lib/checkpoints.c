/*
 * checkpoints.c: holding, sharing and returning; checkpoints_thin.c says which goes when room runs out,
 * checkpoints_step.c what a step does to them.
 *
 * A checkpoint's slot is counted like a cell: by the sequences that have it, and by nobody else. Whenever
 * a count may have fallen to 0, cl_checkpoints_collect gives back what such slots hold. Slots are few, so looking at
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
           cl_cells_measure(cl_cells_blocks(n), (cl_cells_kind){false, false}, &cells) &&
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
    return cl_cells_create(&checkpoints->sequences.cells, &checkpoints->pool, 1,
                           (cl_cells_kind){false, false}, alloc);
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

/* A group that can be cut off anywhere needs nothing. */
bool cl_checkpoints_needs_pin(const cl_group *group)
{
    return group->kind == CELLAR_LAYER_RECURRENT || cl_group_has_window(group);
}

/* Let go of everything that a checkpoint holds. */
static void release_pins(cl_checkpoints *checkpoints, uint32_t checkpoint)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_pin *pin = cl_checkpoints_pin_of(checkpoints, checkpoint, g);
        bool is_taken = checkpoints->suspended[checkpoint] >> g & 1;
        if (!is_taken)
            cl_sequences_release_runs(&checkpoints->groups[g].sequences, pin->runs.items,
                                      pin->runs.n);
        pin->runs.n = 0;
    }
    checkpoints->is_live[checkpoint] = false;
    checkpoints->suspended[checkpoint] = 0;
}

/* Give back what checkpoints hold that no sequence has any more. */
void cl_checkpoints_collect(cl_checkpoints *checkpoints)
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

/* Fill in what a checkpoint at n holds of a sequence; the lists have room. */
void cl_checkpoints_fill(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_seq seq,
                         cellar_pos n)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        cl_pin *pin = cl_checkpoints_pin_of(checkpoints, checkpoint, g);
        pin->runs.n = 0;
        if (!cl_checkpoints_needs_pin(group)) continue;
        append_seen(group, cl_group_runs(group, seq), n, &pin->runs);
        cl_sequences_hold_runs(&group->sequences, pin->runs.items, pin->runs.n);
    }
    checkpoints->is_live[checkpoint] = true;
    checkpoints->suspended[checkpoint] = 0;
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
cellar_status cl_checkpoints_reserve_list(cl_checkpoints *checkpoints, cellar_seq seq,
                                          uint32_t n_more, cellar_error *error)
{
    uint32_t slot;
    CL_TRY(cl_sequences_add(&checkpoints->sequences, seq, &slot, error));
    const cl_runs *list = &checkpoints->sequences.table.items[slot].runs;
    uint64_t n = count_entries(list) + n_more + 3ull;
    cellar_status status = cl_sequences_reserve(&checkpoints->sequences, slot, n, error);
    if (status != CELLAR_OK) cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
    return status;
}

/* Room in the lists of a checkpoint for what it will hold of a sequence. */
static cellar_status reserve_pins(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_seq seq,
                                  cellar_error *error)
{
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        cl_group *group = &checkpoints->groups[g];
        if (!cl_checkpoints_needs_pin(group)) continue;
        uint64_t n = cl_group_runs(group, seq)->n + 1ull;
        if (!cl_runs_reserve(&cl_checkpoints_pin_of(checkpoints, checkpoint, g)->runs,
                             group->sequences.alloc, n))
            return cl_error_no_memory(error, "a checkpoint", (size_t)n * sizeof(cl_run));
    }
    return CELLAR_OK;
}

/*
 * Put a counted checkpoint into a sequence's list, in place of one that stands there. False: the list has
 * gone meanwhile.
 */
bool cl_checkpoints_add(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
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
void cl_checkpoints_take_slot(cl_checkpoints *checkpoints, uint32_t checkpoint, cellar_pos n)
{
    cl_cells *cells = &checkpoints->sequences.cells;
    cl_cells_take(cells, checkpoint, 1, 1);
    cells->stored_pos[checkpoint] = n - 1;
    cells->token[checkpoint] = -1;
}

/* Is there one at n already? */
bool cl_checkpoints_has_one_at(const cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n)
{
    cellar_pos at;
    return cl_checkpoints_find(checkpoints, seq, n, &at) != CL_NO_CHECKPOINT && at == n;
}

cellar_status cl_checkpoints_make(cl_checkpoints *checkpoints, cellar_seq seq, cellar_pos n,
                                  cellar_error *error)
{
    if (checkpoints->n == 0 || cl_checkpoints_has_one_at(checkpoints, seq, n)) return CELLAR_OK;
    CL_TRY(cl_checkpoints_reserve_list(checkpoints, seq, 1, error));
    bool is_in_use;
    uint32_t checkpoint = cl_checkpoints_choose_slot(checkpoints, &is_in_use);
    cellar_status status = CELLAR_OK;
    if (checkpoint == CL_NO_CHECKPOINT)
        status = cl_error_set(error, CELLAR_FULL, CELLAR_REASON_NO_CELLS, 1,
                              "no room for a checkpoint of sequence %d", (int)seq);
    else /* what another still holds there stays, its lists only become longer */
        status = reserve_pins(checkpoints, checkpoint, seq, error);
    if (status != CELLAR_OK) {
        uint32_t slot = cl_sequence_table_find(&checkpoints->sequences.table, seq);
        cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
        return status;
    }
    if (is_in_use) cl_checkpoints_drop_everywhere(checkpoints, checkpoint);
    cl_checkpoints_take_slot(checkpoints, checkpoint, n);
    cl_checkpoints_fill(checkpoints, checkpoint, seq, n);
    (void)cl_checkpoints_add(checkpoints, seq, n, checkpoint);
    cl_checkpoints_drop_empty_lists(checkpoints);
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
    return cl_checkpoints_needs_pin(group) && cl_group_continue_at(group, seq, n) != n;
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
        uint64_t more = cl_checkpoints_pin_of(checkpoints, checkpoint, g)->runs.n + 2ull;
        uint64_t n_runs = group->sequences.table.items[slot].runs.n;
        cellar_status status = cl_sequences_reserve(&group->sequences, slot, more, error);
        if (status == CELLAR_OK && cl_group_has_window(group))
            status = cl_sequences_reserve_lost(&group->sequences, slot, n_runs + more, error);
        if (is_new && status != CELLAR_OK) cl_sequences_drop_if_empty(&group->sequences, slot);
        CL_TRY(status);
    }
    return CELLAR_OK;
}

/* What stood before n and is not part of the checkpoint there is lost. */
static void lose_others(cl_sequence *sequence, const cl_pin *pin, cellar_pos n)
{
    cl_lost_remove(&sequence->lost, n, INT64_MAX);
    cl_run part;
    for (uint32_t i = 0; i < sequence->runs.n; i++)
        if (cl_run_clip(&sequence->runs.items[i], 0, n, &part))
            cl_lost_add(&sequence->lost, part.pos, cl_run_last(&part) + 1LL);
    for (uint32_t i = 0; i < pin->runs.n; i++)
        cl_lost_remove(&sequence->lost, pin->runs.items[i].pos,
                       cl_run_last(&pin->runs.items[i]) + 1LL);
}

void cl_checkpoints_return(cl_checkpoints *checkpoints, uint32_t g, cellar_seq seq,
                           uint32_t checkpoint)
{
    cellar_pos n = position_of(checkpoints, seq, checkpoint);
    cl_group *group = &checkpoints->groups[g];
    const cl_pin *pin = cl_checkpoints_pin_of(checkpoints, checkpoint, g);
    uint32_t slot = cl_sequence_table_find(&group->sequences.table, seq);
    if (slot == CL_NO_SLOT) return;
    if (cl_group_has_window(group)) lose_others(&group->sequences.table.items[slot], pin, n);
    cl_sequences_hold_runs(&group->sequences, pin->runs.items, pin->runs.n);
    cl_sequences_replace(&group->sequences, slot, (cl_range){0, INT64_MAX}, pin->runs.items,
                         pin->runs.n);
}

/* ---- following the operations on sequences ----------------------------------------------------- */

cellar_status cl_checkpoints_prepare_copy(cl_checkpoints *checkpoints, cellar_seq from,
                                          cellar_seq to, cl_range range, cellar_error *error)
{
    if (checkpoints->n == 0 || range.p0 > 0) return CELLAR_OK;
    uint32_t n = count_entries(cl_sequence_table_runs(&checkpoints->sequences.table, from));
    if (n == 0) return CELLAR_OK;
    CL_TRY(cl_checkpoints_reserve_list(checkpoints, to, n, error));
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
    cl_checkpoints_collect(checkpoints);
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
    cl_checkpoints_collect(checkpoints);
}

void cl_checkpoints_keep(cl_checkpoints *checkpoints, cellar_seq seq)
{
    if (checkpoints->n == 0) return;
    cl_sequences_keep(&checkpoints->sequences, seq);
    cl_checkpoints_collect(checkpoints);
}

void cl_checkpoints_clear(cl_checkpoints *checkpoints)
{
    if (checkpoints->n == 0) return;
    cl_sequences_clear(&checkpoints->sequences);
    cl_checkpoints_collect(checkpoints);
}
