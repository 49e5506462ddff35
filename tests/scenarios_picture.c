/*
 * scenarios_picture.c: everything that can be asked of a memory, folded into one number.
 *
 * Two moments with the same number look alike to every caller: runs and cells with all their
 * fields, the counts of each group, the facts about sequences 0..15 and the checkpoints of these.
 * Runs may be shown in any order of their sequences, so their hashes are added, not chained. Bytes
 * in reserve and work done (rows written, rows moved) are left out, as in a drive_snapshot. A call
 * that fails counts as one more thing that looks different.
 */
#include "scenarios.h"

static uint64_t fold(uint64_t hash, const int64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = random_mix(hash, (uint64_t)numbers[i]);
    return hash;
}

#define FOLD(hash, ...)                                                                            \
    fold((hash), (const int64_t[]){__VA_ARGS__},                                                   \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static bool add_run(void *context, const cellar_run *run)
{
    uint64_t *sum = context;
    *sum += FOLD(1, run->seq, run->pos, run->cell, run->len, run->step, run->shift, run->group);
    return true;
}

static bool add_cell(void *context, const cellar_cell *cell)
{
    uint64_t *sum = context;
    *sum += FOLD(2, cell->cell, cell->refs, cell->stored_pos, cell->token, cell->point.y,
                 cell->point.x, cell->group, cell->pool);
    return true;
}

static bool add_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    uint64_t *sum = context;
    *sum += FOLD(3, info->position, info->n_holders, info->n_cells, info->state);
    return true;
}

static uint64_t sum_sequence(const cellar_memory *memory, cellar_seq seq)
{
    cellar_sequence_info info = {0};
    uint64_t sum = 0;
    cellar_status asked = cellar_get_sequence(memory, seq, &info, NULL);
    cellar_status visited = cellar_visit_checkpoints(memory, seq, add_checkpoint, &sum, NULL);
    return sum + FOLD(4, seq, asked, visited, info.pos_min, info.pos_max, info.pos_next,
                      info.rewind_min, info.n_cells, info.n_shared, info.n_runs, info.n_shifts,
                      info.n_checkpoints, info.pool);
}

uint64_t scenario_picture(const cellar_memory *memory)
{
    uint64_t sum = 0;
    if (cellar_visit_runs(memory, -1, add_run, &sum, NULL) != CELLAR_OK ||
        cellar_visit_cells(memory, add_cell, &sum, NULL) != CELLAR_OK)
        sum += 1;
    for (cellar_seq seq = 0; seq < 16; seq++)
        sum += sum_sequence(memory, seq);
    for (uint32_t g = 0; g < cellar_count_groups(memory); g++) {
        cellar_group_info info = {0};
        cellar_status status = cellar_get_group(memory, g, &info, NULL);
        sum += FOLD(5, g, status, info.n_cells, info.n_used, info.n_free);
    }
    return sum;
}
