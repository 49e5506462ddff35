/*
 * check.c: the invariants, checked the expensive way.
 *
 *   1. A cell's count is the number of runs that cover it (and of the open step's); its bit in the
 *      free map is set iff the count is 0; the derived counters agree.
 *   2. Runs are sorted, disjoint (but for shared positions), of constant shift, and maximal; the
 *      shift is what the cells' stored positions say.
 *   3. A claim is known to both sides: the block names the sequence, the sequence the block.
 *   4. The table finds every sequence by its name, and no sequence is empty but one that the open
 *      step made.
 */
#include <string.h>

#include "bitmap.h"
#include "error.h"
#include "memory.h"

static cellar_status check_run(const cl_cells *cells, cellar_seq id, const cl_run *run,
                               cellar_error *error)
{
    if (run->len == 0 || run->pos < 0 || run->cell >= cells->n || run->len > cells->n - run->cell)
        CL_FAIL(error, CELLAR_CORRUPT, run->pos,
                "sequence %d: run at %d covers cells %u + %u of %u", (int)id, (int)run->pos,
                run->cell, run->len, cells->n);
    if (run->len == 1 && !run->step)
        CL_FAIL(error, CELLAR_CORRUPT, run->pos, "sequence %d: run of one cell at %d has step 0",
                (int)id, (int)run->pos);
    for (uint32_t i = 0; i < run->len; i++) {
        int32_t pos = run->pos + (int32_t)(run->step ? i : 0);
        if (pos - cells->stored_pos[run->cell + i] != run->shift)
            CL_FAIL(error, CELLAR_CORRUPT, pos,
                    "sequence %d: cell %u at %d is stored for %d, shift is %d", (int)id,
                    run->cell + i, (int)pos, (int)cells->stored_pos[run->cell + i],
                    (int)run->shift);
    }
    return CELLAR_OK;
}

static cellar_status check_runs(const cl_cells *cells, const cl_sequence *sequence,
                                uint32_t *counted, cellar_error *error)
{
    const cl_runs *runs = &sequence->runs;
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        CL_TRY(check_run(cells, sequence->id, run, error));
        for (uint32_t k = 0; k < run->len; k++)
            counted[run->cell + k]++;
        if (i == 0) continue;
        const cl_run *before = run - 1;
        bool in_order = cl_run_last(before) < run->pos ||
                        (cl_run_last(before) == run->pos && (!before->step || before->len == 1) &&
                         (!run->step || run->len == 1));
        if (!in_order)
            CL_FAIL(error, CELLAR_CORRUPT, run->pos, "sequence %d: runs at %d and %d overlap",
                    (int)sequence->id, (int)before->pos, (int)run->pos);
        if (cl_run_touches(before, run))
            CL_FAIL(error, CELLAR_CORRUPT, run->pos, "sequence %d: runs at %d and %d could be one",
                    (int)sequence->id, (int)before->pos, (int)run->pos);
    }
    return CELLAR_OK;
}

static cellar_status check_counts(const cl_cells *cells, const uint32_t *counted,
                                  cellar_error *error)
{
    uint32_t n_free = 0, n_shared = 0;
    for (uint32_t cell = 0; cell < cells->n; cell++) {
        bool is_free = cl_bitmap_get(cells->free_map, cell);
        if (cells->refs[cell] != counted[cell])
            CL_FAIL(error, CELLAR_CORRUPT, cell, "cell %u counts %u holders, it has %u", cell,
                    cells->refs[cell], counted[cell]);
        if (is_free != (counted[cell] == 0))
            CL_FAIL(error, CELLAR_CORRUPT, cell, "cell %u has %u holders and its free bit is %d",
                    cell, counted[cell], is_free);
        if (is_free && cell < cells->first_free)
            CL_FAIL(error, CELLAR_CORRUPT, cell, "cell %u is free, below the first free cell %u",
                    cell, cells->first_free);
        n_free += is_free;
        n_shared += counted[cell] >= 2;
    }
    if (n_free != cells->n_free || n_shared != cells->n_shared)
        CL_FAIL(error, CELLAR_CORRUPT, -1, "%u cells free and %u shared, counted as %u and %u",
                n_free, n_shared, cells->n_free, cells->n_shared);
    for (uint32_t i = cells->n; i < cells->n_words * 64; i++)
        if (cl_bitmap_get(cells->free_map, i))
            CL_FAIL(error, CELLAR_CORRUPT, i, "a cell beyond the last is marked free");
    return CELLAR_OK;
}

static uint32_t count_free(const cl_cells *cells, uint32_t block)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < CL_BLOCK && block * CL_BLOCK + i < cells->n; i++)
        n += cl_bitmap_get(cells->free_map, block * CL_BLOCK + i);
    return n;
}

/* The hints where a search starts: nothing useful may lie below them. */
static cellar_status check_hints(const cl_cells *cells, cellar_error *error)
{
    for (uint32_t block = 0; block < cells->n_blocks; block++) {
        if (cells->claims[block] != 0) continue;
        uint32_t n_free = count_free(cells, block);
        if ((n_free > 0 && block < cells->first_unclaimed) ||
            (n_free == CL_BLOCK && block < cells->first_untouched))
            CL_FAIL(error, CELLAR_CORRUPT, block,
                    "block %u has %u free cells and no claim, but searches start at %u and %u",
                    block, n_free, cells->first_unclaimed, cells->first_untouched);
    }
    return CELLAR_OK;
}

static cellar_status check_claims(const cl_sequences *sequences, cellar_error *error)
{
    const cl_sequence_table *table = &sequences->table;
    for (uint32_t block = 0; block < sequences->cells.n_blocks; block++) {
        uint32_t owner = sequences->cells.claims[block];
        if (owner == 0) continue;
        if (owner > table->n_slots || table->items[owner - 1].id < 0 ||
            table->items[owner - 1].claim != block)
            CL_FAIL(error, CELLAR_CORRUPT, block,
                    "block %u is claimed by a sequence that does not know", block);
    }
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0 || sequence->claim == CL_NO_BLOCK) continue;
        if (sequence->claim >= sequences->cells.n_blocks ||
            sequences->cells.claims[sequence->claim] != slot + 1)
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id,
                    "sequence %d claims block %u, which is not its", (int)sequence->id,
                    sequence->claim);
    }
    return CELLAR_OK;
}

static cellar_status check_table(const cl_sequence_table *table, bool step_is_open,
                                 cellar_error *error)
{
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        n++;
        if (cl_sequence_table_find(table, sequence->id) != slot)
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id, "sequence %d is not found by its name",
                    (int)sequence->id);
        if (sequence->runs.n == 0 && !step_is_open)
            CL_FAIL(error, CELLAR_CORRUPT, sequence->id, "sequence %d holds nothing but exists",
                    (int)sequence->id);
    }
    if (n != table->n)
        CL_FAIL(error, CELLAR_CORRUPT, -1, "%u sequences, counted as %u", n, table->n);
    return CELLAR_OK;
}

static cellar_status check_group(const cellar_memory *memory, const cl_group *group,
                                 uint32_t *counted, cellar_error *error)
{
    const cl_sequences *sequences = &group->sequences;
    const cl_step *step = &memory->step;
    memset(counted, 0, sequences->cells.n * sizeof *counted);
    CL_TRY(check_table(&sequences->table, step->is_open, error));
    for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++)
        if (sequences->table.items[slot].id >= 0)
            CL_TRY(check_runs(&sequences->cells, &sequences->table.items[slot], counted, error));
    for (uint32_t i = 0; step->is_open && i < step->n_tokens; i++)
        counted[group->cells_of[i]] += step->member_begin[i + 1] - step->member_begin[i];
    CL_TRY(check_counts(&sequences->cells, counted, error));
    CL_TRY(check_claims(sequences, error));
    return check_hints(&sequences->cells, error);
}

cellar_status cellar_check(const cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        const cellar_allocator *allocator = &memory->alloc.user;
        size_t size = group->sequences.cells.n * sizeof(uint32_t);
        uint32_t *counted = allocator->allocate(allocator->context, size, CL_ALIGN);
        if (!counted) return cl_error_no_memory(error, "counting holders", size);
        cellar_status status = check_group(memory, group, counted, error);
        allocator->release(allocator->context, counted, size);
        CL_TRY(status);
    }
    return CELLAR_OK;
}
