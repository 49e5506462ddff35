/*
 * snapshot.c: what is in memory now: counts, groups, runs, cells, checkpoints. One look, no effect.
 *
 * These are the library's windows for tests, tools and curious people. They read the same structures
 * that operations edit, so they show the state itself and not a copy that may be stale; while a step
 * is open its reserved cells count as used but belong to no sequence yet. Nothing is allocated and
 * nothing fails but by its arguments.
 */
#include "compaction.h"
#include "error.h"
#include "memory.h"

/* ---- groups ---------------------------------------------------------------------------------- */

/* Cells that can hold something: those that only fill up blocks are left out. */
static uint32_t count_usable(const cl_cells *cells)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < cells->n_pools; p++)
        n += cells->pools[p].n;
    return n;
}

uint32_t cellar_count_groups(const cellar_memory *memory)
{
    return memory ? memory->n_groups : 0;
}

cellar_status cellar_get_group(const cellar_memory *memory, uint32_t group, cellar_group_info *out,
                               cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    if (group >= memory->n_groups)
        CL_FAIL(error, CELLAR_INVALID, group, "group %u: the memory has %u", group,
                memory->n_groups);
    const cl_group *its = &memory->groups[group];
    const cl_cells *cells = &its->sequences.cells;
    *out = (cellar_group_info){
        .kind = its->kind,
        .window = its->window,
        .n_cells = cells->n,
        .n_used = count_usable(cells) - cells->n_free,
        .n_free = cells->n_free,
        .row_bytes = cl_storage_cell_bytes(&its->storage),
        .is_external = its->is_external,
    };
    for (uint32_t i = 0; i < memory->n_layers; i++)
        out->n_layers += memory->layers[i].group == (int32_t)group;
    return CELLAR_OK;
}

int32_t cellar_group_of_layer(const cellar_memory *memory, uint32_t layer)
{
    return memory && layer < memory->n_layers ? memory->layers[layer].group : -1;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* The group whose cells the statistics speak of: the largest that attends, else the only one. */
static const cl_group *main_group(const cellar_memory *memory)
{
    const cl_group *largest = NULL;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        if (group->kind != CELLAR_LAYER_ATTENTION) continue;
        if (!largest ||
            count_usable(&group->sequences.cells) > count_usable(&largest->sequences.cells))
            largest = group;
    }
    if (largest || memory->n_groups == 0) return largest;
    return &memory->groups[0];
}

/* Does the sequence hold something in a group before this one? */
static bool is_counted(const cellar_memory *memory, uint32_t group, cellar_seq seq)
{
    for (uint32_t g = 0; g < group; g++)
        if (cl_memory_runs(memory, g, seq)->n > 0) return true;
    return false;
}

static void count_sequences(const cellar_memory *memory, cellar_statistics *out)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_sequence_table *table = &memory->groups[g].sequences.table;
        for (uint32_t slot = 0; slot < table->n_slots; slot++) {
            const cl_sequence *sequence = &table->items[slot];
            if (sequence->id < 0 || sequence->runs.n == 0) continue;
            out->n_runs += sequence->runs.n;
            out->n_sequences += !is_counted(memory, g, sequence->id);
        }
    }
    out->fragmentation = cl_compaction_fragmentation(memory);
    float threshold = memory->config.compaction_threshold;
    out->wants_compaction = threshold > 0 && out->fragmentation >= threshold;
}

static void count_checkpoints(const cl_checkpoints *checkpoints, cellar_statistics *out)
{
    for (uint32_t i = 0; i < checkpoints->n; i++)
        out->n_checkpoints += checkpoints->is_live[i];
    out->checkpoints_dropped = checkpoints->n_dropped;
}

cellar_status cellar_stats(const cellar_memory *memory, cellar_statistics *out, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    *out = (cellar_statistics){0};
    const cl_group *group = main_group(memory);
    if (group) {
        const cl_cells *cells = &group->sequences.cells;
        out->n_cells = count_usable(cells);
        out->n_free = cells->n_free;
        out->n_used = out->n_cells - out->n_free;
        out->n_shared = cells->n_shared;
        out->longest_free = cl_cells_longest_free(cells);
    }
    count_sequences(memory, out);
    count_checkpoints(&memory->checkpoints, out);
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        out->rows_moved += memory->groups[g].n_moved;
        out->cells_reclaimed += memory->groups[g].n_reclaimed;
    }
    out->n_moves = memory->moves.n;
    out->rows_written = memory->rows_written;
    out->budget_bytes = memory->config.budget_bytes;
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++) {
        out->sizes.bytes[kind] = memory->alloc.bytes[kind];
        out->sizes.total += memory->alloc.bytes[kind];
    }
    return CELLAR_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool visit_list(uint32_t group, cellar_seq seq, const cl_runs *runs,
                       cellar_run_visitor visitor, void *context)
{
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        cellar_run shown = {seq, run->pos, run->cell, run->len, run->step, run->shift, group};
        if (!visitor(context, &shown)) return false;
    }
    return true;
}

cellar_status cellar_visit_runs(const cellar_memory *memory, cellar_seq seq,
                                cellar_run_visitor visitor, void *context, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    if (seq < -1) CL_FAIL(error, CELLAR_INVALID, seq, "sequence %d is below -1", (int)seq);
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_sequence_table *table = &memory->groups[g].sequences.table;
        if (seq >= 0) {
            if (!visit_list(g, seq, cl_memory_runs(memory, g, seq), visitor, context))
                return CELLAR_OK;
            continue;
        }
        for (uint32_t slot = 0; slot < table->n_slots; slot++) {
            const cl_sequence *sequence = &table->items[slot];
            if (sequence->id < 0) continue;
            if (!visit_list(g, sequence->id, &sequence->runs, visitor, context)) return CELLAR_OK;
        }
    }
    return CELLAR_OK;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static cellar_cell describe_cell(const cl_cells *cells, uint32_t group, uint32_t cell)
{
    cellar_pos pos = cells->stored_pos[cell];
    cl_point away = cells->points ? cells->points[cell] : (cl_point){0, 0};
    return (cellar_cell){
        .cell = cell,
        .refs = cells->refs[cell],
        .stored_pos = pos,
        .token = cells->token[cell],
        .point = {pos + away.y, pos + away.x},
        .group = group,
        .pool = cells->pool_of[cell / CL_BLOCK],
    };
}

cellar_status cellar_visit_cells(const cellar_memory *memory, cellar_cell_visitor visitor,
                                 void *context, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_cells *cells = &memory->groups[g].sequences.cells;
        for (uint32_t cell = 0; cell < cells->n; cell++) {
            if (cells->refs[cell] == 0) continue;
            cellar_cell shown = describe_cell(cells, g, cell);
            if (!visitor(context, &shown)) return CELLAR_OK;
        }
    }
    return CELLAR_OK;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static cellar_checkpoint_info describe_checkpoint(const cl_checkpoints *checkpoints,
                                                  uint32_t checkpoint, int64_t pos)
{
    cellar_checkpoint_info info = {
        .position = (cellar_pos)(pos + 1),
        .n_holders = checkpoints->sequences.cells.refs[checkpoint],
        .state = CELLAR_NO_STATE,
    };
    for (uint32_t g = 0; g < checkpoints->n_groups; g++) {
        const cl_runs *runs = &cl_checkpoints_pin(checkpoints, checkpoint, g)->runs;
        bool is_recurrent = checkpoints->groups[g].kind == CELLAR_LAYER_RECURRENT;
        for (uint32_t r = 0; r < runs->n && !is_recurrent; r++)
            info.n_cells += runs->items[r].len;
        if (is_recurrent && runs->n > 0) info.state = runs->items[0].cell;
    }
    return info;
}

cellar_status cellar_visit_checkpoints(const cellar_memory *memory, cellar_seq seq,
                                       cellar_checkpoint_visitor visitor, void *context,
                                       cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_seq(seq, error));
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    const cl_checkpoints *checkpoints = &memory->checkpoints;
    if (checkpoints->n == 0) return CELLAR_OK;
    const cl_runs *list = cl_sequence_table_runs(&checkpoints->sequences.table, seq);
    for (uint32_t r = 0; r < list->n; r++)
        for (uint32_t i = 0; i < list->items[r].len; i++) {
            const cl_run *run = &list->items[r];
            cellar_checkpoint_info info = describe_checkpoint(
                checkpoints, run->cell + i, (int64_t)run->pos + (run->step ? i : 0));
            if (!visitor(context, &info)) return CELLAR_OK;
        }
    return CELLAR_OK;
}
