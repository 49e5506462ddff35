/*
 * check.c: the invariants, checked the expensive way.
 *
 *   1. A cell's count is the number of its holders: runs of sequences, pins of checkpoints, the open
 *      step. Its bit in the free map is set iff it counts for its pool and nobody holds it.
 *   2. Runs are sorted, disjoint (but for shared positions), of constant shift, and maximal; the
 *      shift is what the cells' stored positions say. A sequence holds cells of its own pool only.
 *   3. The counters and hints of each pool agree with its blocks.
 *   4. A claim is known to both sides: the block names the sequence, the sequence the block.
 *   5. The table finds every sequence by its name, and no sequence is empty but one that the open
 *      step made, or that has lost something behind a window.
 *
 * Checkpoints are held by run lists too, so theirs are checked like the sequences of a group. What
 * only a step or a checkpoint knows is in check_step.c.
 */
#include "check.h"

#include <string.h>

#include "bitmap.h"
#include "error.h"

/* ---- runs ------------------------------------------------------------------------------------ */

cellar_status cl_check_run(const cl_cells *cells, const cl_run *run, uint32_t pool,
                           const char *owner, int64_t number, uint32_t *counted,
                           cellar_error *error)
{
    if (run->len == 0 || run->pos < 0 || run->cell >= cells->n || run->len > cells->n - run->cell ||
        (run->step && run->len > (uint32_t)INT32_MAX - (uint32_t)run->pos))
        CL_FAIL(error, CELLAR_CORRUPT, run->pos, "%s %lld: run at %d covers cells %u + %u of %u",
                owner, (long long)number, (int)run->pos, run->cell, run->len, cells->n);
    if (run->len == 1 && !run->step)
        CL_FAIL(error, CELLAR_CORRUPT, run->pos, "%s %lld: run of one cell at %d has step 0", owner,
                (long long)number, (int)run->pos);
    for (uint32_t i = 0; i < run->len; i++) {
        uint32_t cell = run->cell + i, its = cells->pool_of[cell / CL_BLOCK];
        int64_t pos = (int64_t)run->pos + (run->step ? i : 0);
        if (pos - cells->stored_pos[cell] != run->shift)
            CL_FAIL(error, CELLAR_CORRUPT, pos,
                    "%s %lld: cell %u at %lld is stored for %d, shift is %d", owner,
                    (long long)number, cell, (long long)pos, (int)cells->stored_pos[cell],
                    (int)run->shift);
        if (its != pool)
            CL_FAIL(error, CELLAR_CORRUPT, pos, "%s %lld: cell %u is of pool %u, not %u", owner,
                    (long long)number, cell, its, pool);
        counted[cell]++;
    }
    return CELLAR_OK;
}

static cellar_status check_sequence(const cl_sequences *sequences, const cl_sequence *sequence,
                                    uint32_t *counted, cellar_error *error)
{
    const cl_runs *runs = &sequence->runs;
    int seq = (int)sequence->id;
    if (sequence->pool != cl_pool_rule_apply(&sequences->rule, sequence->id))
        CL_FAIL(error, CELLAR_CORRUPT, seq, "sequence %d is in pool %u, the rule says %u", seq,
                sequence->pool, cl_pool_rule_apply(&sequences->rule, sequence->id));
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i], *before = run - 1;
        CL_TRY(
            cl_check_run(&sequences->cells, run, sequence->pool, "sequence", seq, counted, error));
        if (i == 0) continue;
        if (cl_run_last(before) > run->pos)
            CL_FAIL(error, CELLAR_CORRUPT, run->pos, "sequence %d: runs at %d and %d overlap", seq,
                    (int)before->pos, (int)run->pos);
        if (cl_run_touches(before, run))
            CL_FAIL(error, CELLAR_CORRUPT, run->pos, "sequence %d: runs at %d and %d could be one",
                    seq, (int)before->pos, (int)run->pos);
    }
    return CELLAR_OK;
}

/* ---- cells and pools ------------------------------------------------------------------------- */

static cellar_status check_cell(const cl_cells *cells, uint32_t cell, bool is_usable,
                                const uint32_t *counted, cellar_error *error)
{
    bool is_free = cl_bitmap_get(cells->free_map, cell);
    if (cells->refs[cell] != counted[cell])
        CL_FAIL(error, CELLAR_CORRUPT, cell, "cell %u counts %u holders, it has %u", cell,
                cells->refs[cell], counted[cell]);
    if (is_usable && is_free != (counted[cell] == 0))
        CL_FAIL(error, CELLAR_CORRUPT, cell, "cell %u has %u holders and its free bit is %d", cell,
                counted[cell], is_free);
    if (!is_usable && (is_free || counted[cell] > 0))
        CL_FAIL(error, CELLAR_CORRUPT, cell,
                "cell %u only fills up its block, but has %u holders and free bit %d", cell,
                counted[cell], is_free);
    return CELLAR_OK;
}

/* What the blocks of one pool come to. */
typedef struct pool_counts {
    uint32_t n_blocks, n_usable, n_free;
    uint32_t end, stretch; /* the free cells right before `end` */
} pool_counts;

/* Nor is a stretch of free cells longer than the pool says. */
static cellar_status check_stretch(const cl_pool *pool, uint32_t p, uint32_t cell,
                                   pool_counts *found, cellar_error *error)
{
    found->stretch = cell == found->end ? found->stretch + 1 : 1;
    found->end = cell + 1;
    if (found->stretch > pool->longest_free)
        CL_FAIL(error, CELLAR_CORRUPT, cell,
                "%u cells up to %u are free, but no stretch of pool %u is longer than %u",
                found->stretch, cell, p, pool->longest_free);
    return CELLAR_OK;
}

/* Searches start at the pool's hints: nothing useful may lie below them. */
static cellar_status check_block(const cl_cells *cells, uint32_t p, uint32_t block,
                                 const uint32_t *counted, pool_counts *found, cellar_error *error)
{
    const cl_pool *pool = &cells->pools[p];
    uint32_t n_free = 0;
    for (uint32_t i = 0; i < CL_BLOCK; i++) {
        uint32_t cell = block * CL_BLOCK + i;
        bool is_usable = found->n_usable < pool->n;
        CL_TRY(check_cell(cells, cell, is_usable, counted, error));
        found->n_usable += is_usable;
        if (!cl_bitmap_get(cells->free_map, cell)) continue;
        n_free++;
        if (cell < pool->first_free)
            CL_FAIL(error, CELLAR_CORRUPT, cell,
                    "cell %u is free, below the first free cell %u of pool %u", cell,
                    pool->first_free, p);
        CL_TRY(check_stretch(pool, p, cell, found, error));
    }
    found->n_blocks++;
    found->n_free += n_free;
    if (cells->claims[block] == 0 && ((n_free > 0 && block < pool->first_unclaimed) ||
                                      (n_free == CL_BLOCK && block < pool->first_untouched)))
        CL_FAIL(error, CELLAR_CORRUPT, block,
                "block %u has %u free cells and no claim, but searches of pool %u start at %u and "
                "%u",
                block, n_free, p, pool->first_unclaimed, pool->first_untouched);
    return CELLAR_OK;
}

static cellar_status check_pool(const cl_cells *cells, uint32_t p, const uint32_t *counted,
                                uint32_t *n_blocks, cellar_error *error)
{
    const cl_pool *pool = &cells->pools[p];
    pool_counts found = {0};
    for (uint32_t block = pool->first_block; block < pool->end_block; block++)
        if (block < cells->n_blocks && cells->pool_of[block] == p)
            CL_TRY(check_block(cells, p, block, counted, &found, error));
    if (found.n_blocks != pool->n_blocks || found.n_usable != pool->n ||
        found.n_free != pool->n_free)
        CL_FAIL(error, CELLAR_CORRUPT, p,
                "pool %u has %u blocks, %u cells, %u free; counted as %u, %u and %u", p,
                found.n_blocks, found.n_usable, found.n_free, pool->n_blocks, pool->n,
                pool->n_free);
    *n_blocks += found.n_blocks;
    return CELLAR_OK;
}

static cellar_status check_cells(const cl_cells *cells, const uint32_t *counted,
                                 cellar_error *error)
{
    uint32_t n_free = 0, n_shared = 0, n_blocks = 0;
    for (uint32_t p = 0; p < cells->n_pools; p++) {
        CL_TRY(check_pool(cells, p, counted, &n_blocks, error));
        n_free += cells->pools[p].n_free;
    }
    if (n_blocks != cells->n_blocks || cells->n != cells->n_blocks * CL_BLOCK)
        CL_FAIL(error, CELLAR_CORRUPT, -1, "the pools have %u blocks, there are %u for %u cells",
                n_blocks, cells->n_blocks, cells->n);
    for (uint32_t cell = 0; cell < cells->n; cell++)
        n_shared += counted[cell] >= 2;
    if (n_free != cells->n_free || n_shared != cells->n_shared)
        CL_FAIL(error, CELLAR_CORRUPT, -1, "%u cells free and %u shared, counted as %u and %u",
                n_free, n_shared, cells->n_free, cells->n_shared);
    for (uint32_t i = cells->n; i < cells->n_words * 64; i++)
        if (cl_bitmap_get(cells->free_map, i))
            CL_FAIL(error, CELLAR_CORRUPT, i, "a cell beyond the last is marked free");
    return CELLAR_OK;
}

/* ---- claims and names ------------------------------------------------------------------------ */

static cellar_status check_claims(const cl_sequences *sequences, cellar_error *error)
{
    const cl_sequence_table *table = &sequences->table;
    const cl_cells *cells = &sequences->cells;
    for (uint32_t block = 0; block < cells->n_blocks; block++) {
        uint32_t owner = cells->claims[block];
        if (owner == 0) continue;
        if (owner > table->n_slots || table->items[owner - 1].id < 0 ||
            table->items[owner - 1].claim != block)
            CL_FAIL(error, CELLAR_CORRUPT, block,
                    "block %u is claimed by a sequence that does not know", block);
        if (table->items[owner - 1].pool != cells->pool_of[block])
            CL_FAIL(error, CELLAR_CORRUPT, block, "block %u is claimed from another pool", block);
    }
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0 || sequence->claim == CL_NO_BLOCK) continue;
        if (sequence->claim >= cells->n_blocks || cells->claims[sequence->claim] != slot + 1)
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id,
                    "sequence %d claims block %u, which is not its", (int)sequence->id,
                    sequence->claim);
    }
    return CELLAR_OK;
}

/* Runs of lost positions: apart from each other, their cell is their position. */
static bool is_lost_sound(const cl_runs *lost, uint32_t i)
{
    const cl_run *run = &lost->items[i];
    int64_t least = i > 0 ? cl_run_last(run - 1) + 2LL : 0;
    return run->pos >= least && run->len > 0 && run->cell == (uint32_t)run->pos && run->step == 1 &&
           run->shift == 0 && (int64_t)run->pos + run->len <= INT32_MAX;
}

static cellar_status check_table(const cl_sequence_table *table, cellar_error *error)
{
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        n++;
        if (cl_sequence_table_find(table, sequence->id) != slot)
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id, "sequence %d is not found by its name",
                    (int)sequence->id);
        for (uint32_t i = 0; i < sequence->lost.n; i++)
            if (!is_lost_sound(&sequence->lost, i))
                CL_FAIL(error, CELLAR_CORRUPT, sequence->id,
                        "sequence %d has lost %u positions from %d on, which is not written as it "
                        "should be",
                        (int)sequence->id, sequence->lost.items[i].len,
                        (int)sequence->lost.items[i].pos);
    }
    if (n != table->n)
        CL_FAIL(error, CELLAR_CORRUPT, -1, "%u sequences, counted as %u", n, table->n);
    return CELLAR_OK;
}

/* Did the open step make this sequence, or is it just about to fill it? */
static bool is_participant(const cl_group *group, uint32_t slot)
{
    for (uint32_t m = 0; m < group->n_participants; m++)
        if (group->participants[m].slot == slot) return true;
    return false;
}

static cellar_status check_emptiness(const cl_group *group, cellar_error *error)
{
    const cl_sequence_table *table = &group->sequences.table;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        if (sequence->lost.n > 0 && !cl_group_has_window(group))
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id,
                    "sequence %d has lost something in group %u, which keeps everything",
                    (int)sequence->id, group->index);
        if (sequence->begin != 0 &&
            (group->kind != CELLAR_LAYER_RECURRENT || sequence->begin < 0 ||
             (sequence->runs.n > 0 && sequence->runs.items[0].pos < sequence->begin)))
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id,
                    "sequence %d begins at %d in group %u, and holds something before that",
                    (int)sequence->id, (int)sequence->begin, group->index);
        if (sequence->runs.n == 0 && sequence->lost.n == 0 && !is_participant(group, slot))
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id, "sequence %d holds nothing but exists",
                    (int)sequence->id);
    }
    return CELLAR_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static cellar_status count_sequences(const cl_sequences *sequences, uint32_t *counted,
                                     cellar_error *error)
{
    memset(counted, 0, sequences->cells.n * sizeof *counted);
    CL_TRY(check_table(&sequences->table, error));
    for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++)
        if (sequences->table.items[slot].id >= 0)
            CL_TRY(check_sequence(sequences, &sequences->table.items[slot], counted, error));
    return CELLAR_OK;
}

static cellar_status check_group(const cellar_memory *memory, const cl_group *group,
                                 uint32_t *counted, cellar_error *error)
{
    CL_TRY(cl_check_step(memory, group, error));
    CL_TRY(count_sequences(&group->sequences, counted, error));
    CL_TRY(cl_check_count_others(memory, group, counted, error));
    CL_TRY(check_cells(&group->sequences.cells, counted, error));
    CL_TRY(check_claims(&group->sequences, error));
    return check_emptiness(group, error);
}

static cellar_status check_all(const cellar_memory *memory, uint32_t *counted, cellar_error *error)
{
    if (memory->checkpoints.n > 0) {
        const cl_sequences *sequences = &memory->checkpoints.sequences;
        CL_TRY(count_sequences(sequences, counted, error));
        CL_TRY(check_cells(&sequences->cells, counted, error));
        CL_TRY(check_claims(sequences, error));
        CL_TRY(cl_check_checkpoints(memory, error));
    }
    for (uint32_t g = 0; g < memory->n_groups; g++)
        CL_TRY(check_group(memory, &memory->groups[g], counted, error));
    return CELLAR_OK;
}

cellar_status cellar_check(const cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    uint32_t most = memory->checkpoints.n > 0 ? memory->checkpoints.sequences.cells.n : 0;
    for (uint32_t g = 0; g < memory->n_groups; g++)
        if (memory->groups[g].sequences.cells.n > most) most = memory->groups[g].sequences.cells.n;
    if (most == 0) return CELLAR_OK;

    const cellar_allocator *allocator = &memory->alloc.user;
    size_t size = most * sizeof(uint32_t);
    uint32_t *counted = allocator->allocate(allocator->context, size, CL_ALIGN);
    if (!counted) return cl_error_no_memory(error, "counting holders", size);
    cellar_status status = check_all(memory, counted, error);
    allocator->release(allocator->context, counted, size);
    return status;
}
