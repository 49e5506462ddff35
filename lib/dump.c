/*
 * dump.c: a map of the memory that a person can look at.
 *
 *     group 0 (attention), pool 0: 70 of 96 cells used
 *     ++++++++++++++++++++++++++++++++111111111111....................
 *     ....................??..........
 *
 * One group at a time is drawn into an array of a character a cell: first what the cells say by
 * themselves (free, shared), then what the run lists and the open step know of the others. Cells that
 * only fill up a pool's last block are not shown. Fails by its arguments and when the array cannot be
 * had; nothing has been written then of the group in question.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "memory.h"

#define LINE_CELLS 64u

/* What the cells say; those held by one who is not a sequence stay '#'. */
static void draw_cells(const cl_cells *cells, char *map)
{
    for (uint32_t cell = 0; cell < cells->n; cell++)
        map[cell] = cells->refs[cell] == 0 ? '.' : cells->refs[cell] == 1 ? '#' : '+';
}

static void draw_sequences(const cl_sequence_table *table, char *map)
{
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        const cl_sequence *sequence = &table->items[slot];
        if (sequence->id < 0) continue;
        char digit = (char)('0' + sequence->id % 10);
        for (uint32_t r = 0; r < sequence->runs.n; r++) {
            const cl_run *run = &sequence->runs.items[r];
            for (uint32_t i = 0; i < run->len; i++)
                if (map[run->cell + i] == '#') map[run->cell + i] = digit;
        }
    }
}

/* Reserved cells belong to nobody yet. A window may have given some of a long batch up again. */
static void draw_step(const cl_group *group, const cl_step *step, char *map)
{
    bool is_recurrent = group->kind == CELLAR_LAYER_RECURRENT;
    const uint32_t *cells = is_recurrent ? group->targets : group->cells_of;
    uint32_t n = is_recurrent ? group->n_targets : step->n_tokens;
    for (uint32_t i = 0; i < n; i++)
        if (cells[i] != CL_NO_CELL && map[cells[i]] != '.') map[cells[i]] = '?';
}

static bool write_head(const cl_group *group, uint32_t pool, cellar_line_writer write,
                       void *context)
{
    const cl_pool *its = &group->sequences.cells.pools[pool];
    bool is_recurrent = group->kind == CELLAR_LAYER_RECURRENT;
    char kind[32], line[128];
    if (cl_group_has_window(group))
        snprintf(kind, sizeof kind, "window %" PRIu32, group->window.size);
    else
        snprintf(kind, sizeof kind, "%s", is_recurrent ? "recurrent" : "attention");
    snprintf(line, sizeof line,
             "group %" PRIu32 " (%s), pool %" PRIu32 ": %" PRIu32 " of %" PRIu32 " %s used",
             group->index, kind, pool, its->n - its->n_free, its->n,
             is_recurrent ? "states" : "cells");
    return write(context, line);
}

/* The cells of a pool in the order of their numbers, gaps that belong to others left out. */
static bool write_pool(const cl_group *group, uint32_t pool, const char *map,
                       cellar_line_writer write, void *context)
{
    const cl_cells *cells = &group->sequences.cells;
    const cl_pool *its = &cells->pools[pool];
    char line[LINE_CELLS + 1];
    uint32_t n = 0;
    if (!write_head(group, pool, write, context)) return false;
    for (uint32_t block = its->first_block; block < its->end_block; block++) {
        if (cells->pool_of[block] != pool) continue;
        uint32_t usable = cl_cells_usable(cells, block);
        memcpy(line + n, map + (size_t)block * CL_BLOCK, usable);
        n += usable;
        if (n < LINE_CELLS) continue;
        line[n] = '\0';
        if (!write(context, line)) return false;
        n = 0;
    }
    line[n] = '\0';
    return n == 0 || write(context, line);
}

static bool write_group(const cellar_memory *memory, const cl_group *group, char *map,
                        cellar_line_writer write, void *context)
{
    const cl_sequences *sequences = &group->sequences;
    draw_cells(&sequences->cells, map);
    draw_sequences(&sequences->table, map);
    if (memory->step.is_open) draw_step(group, &memory->step, map);
    for (uint32_t pool = 0; pool < sequences->cells.n_pools; pool++)
        if (!write_pool(group, pool, map, write, context)) return false;
    return true;
}

cellar_status cellar_dump(const cellar_memory *memory, cellar_line_writer write, void *context,
                          cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!write) CL_FAIL(error, CELLAR_INVALID, -1, "write is NULL");
    const cellar_allocator *allocator = &memory->alloc.user;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        size_t size = group->sequences.cells.n;
        char *map = allocator->allocate(allocator->context, size, CL_ALIGN);
        if (!map) return cl_error_no_memory(error, "a map of the cells", size);
        bool goes_on = write_group(memory, group, map, write, context);
        allocator->release(allocator->context, map, size);
        if (!goes_on) break;
    }
    return CELLAR_OK;
}
