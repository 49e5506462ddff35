/*
 * checkpoints_thin.c: which checkpoint goes when there is no room.
 *
 * The one whose loss widens the gap between its neighbours least, in proportion to its distance from the
 * end of its sequence: dense near the end, thinning out behind. The cost is looked up when it is asked
 * for, over all sequences: room runs out rarely, and checkpoints are few.
 */
#include "checkpoints.h"

/* ---- the cost of losing one -------------------------------------------------------------------- */

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
    const cl_pin *pin = cl_checkpoints_pin_of(checkpoints, checkpoint, group);
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

/*
 * Take a checkpoint out of every list. Lists have room for a cut: see add_to_list. Those that become empty
 * stay, since somebody may have reserved room in them for what comes next.
 */
void cl_checkpoints_drop_everywhere(cl_checkpoints *checkpoints, uint32_t checkpoint)
{
    cl_sequence_table *table = &checkpoints->sequences.table;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        for (uint32_t r = 0; r < sequence->runs.n; r++) {
            const cl_run *run = &sequence->runs.items[r];
            if (checkpoint < run->cell || checkpoint >= run->cell + run->len) continue;
            int64_t pos = run->pos + (int64_t)(checkpoint - run->cell);
            cl_sequences_empty(&checkpoints->sequences, slot, (cl_range){pos, pos + 1});
            checkpoints->has_empty_lists |= sequence->runs.n == 0;
            break;
        }
    }
    cl_checkpoints_collect(checkpoints);
    checkpoints->n_dropped++;
}

void cl_checkpoints_drop_empty_lists(cl_checkpoints *checkpoints)
{
    if (!checkpoints->has_empty_lists) return;
    for (uint32_t slot = 0; slot < checkpoints->sequences.table.n_slots; slot++)
        if (checkpoints->sequences.table.items[slot].id >= 0)
            cl_sequences_drop_if_empty(&checkpoints->sequences, slot);
    checkpoints->has_empty_lists = false;
}

uint32_t cl_checkpoints_free_slot(cl_checkpoints *checkpoints)
{
    cl_cells *cells = &checkpoints->sequences.cells;
    if (cells->n_free == 0) return CL_NO_CHECKPOINT;
    cl_request request = {0, 0, CL_NO_CELL, 1};
    cl_stretch stretch;
    (void)cl_placement_choose(cells, &request, &stretch);
    return stretch.cell;
}

uint32_t cl_checkpoints_choose_slot(cl_checkpoints *checkpoints, bool *is_in_use)
{
    uint32_t slot = cl_checkpoints_free_slot(checkpoints);
    *is_in_use = slot == CL_NO_CHECKPOINT;
    return *is_in_use ? choose_least(checkpoints, UINT32_MAX, 0) : slot;
}
