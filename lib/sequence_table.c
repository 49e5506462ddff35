/*
 * sequence_table.c: an open-addressing hash from names to slots, and a list of vacant slots.
 *
 * Sequences live in one array and keep their place (their slot) until they are dropped; only the index
 * is rebuilt when it grows. Removal closes the gap in the probe chain at once, so there are no
 * tombstones and a table that sees many short-lived sequences does not slow down.
 */
#include "sequence_table.h"

#include <string.h>

#include "cells.h"

void cl_sequence_table_init(cl_sequence_table *table)
{
    memset(table, 0, sizeof *table);
    table->first_vacant = CL_NO_SLOT;
    table->seed = cl_sequence_seed(table);
}

void cl_sequence_table_free(cl_sequence_table *table, cl_alloc *alloc)
{
    for (uint32_t slot = 0; slot < table->n_slots; slot++) {
        if (table->items[slot].id < 0) continue;
        cl_runs_free(&table->items[slot].runs, alloc);
        cl_runs_free(&table->items[slot].lost, alloc);
    }
    cl_alloc_put(alloc, CELLAR_BYTES_RUNS, table->items, table->capacity * sizeof(cl_sequence));
    cl_alloc_put(alloc, CELLAR_BYTES_RUNS, table->index, table->index_size * sizeof(uint32_t));
    cl_sequence_table_init(table);
}

static uint32_t home_of(const cl_sequence_table *table, cellar_seq id)
{
    return cl_sequence_hash(id, table->seed, table->index_size);
}

/* Where the name stands in the index, or the vacant place where it would. */
static uint32_t place_of(const cl_sequence_table *table, cellar_seq id)
{
    uint32_t at = home_of(table, id);
    while (table->index[at] != CL_NO_SLOT && table->items[table->index[at]].id != id)
        at = (at + 1) & (table->index_size - 1);
    return at;
}

uint32_t cl_sequence_table_find(const cl_sequence_table *table, cellar_seq id)
{
    if (table->n == 0) return CL_NO_SLOT;
    return table->index[place_of(table, id)];
}

static const cl_runs no_runs = {NULL, 0, 0};

const cl_runs *cl_sequence_table_runs(const cl_sequence_table *table, cellar_seq id)
{
    uint32_t slot = cl_sequence_table_find(table, id);
    return slot == CL_NO_SLOT ? &no_runs : &table->items[slot].runs;
}

const cl_runs *cl_sequence_table_lost(const cl_sequence_table *table, cellar_seq id)
{
    uint32_t slot = cl_sequence_table_find(table, id);
    return slot == CL_NO_SLOT ? &no_runs : &table->items[slot].lost;
}

/* Make the index large enough for one sequence more. */
static bool grow_index(cl_sequence_table *table, cl_alloc *alloc)
{
    if (2 * (uint64_t)(table->n + 1) <= table->index_size) return true;
    uint32_t old_size = table->index_size, new_size = old_size ? 2 * old_size : 16;
    if (new_size < old_size) return false;
    uint32_t *index = cl_alloc_get(alloc, CELLAR_BYTES_RUNS, new_size * sizeof *index);
    if (!index) return false;
    memset(index, 0xff, new_size * sizeof *index);
    cl_alloc_put(alloc, CELLAR_BYTES_RUNS, table->index, old_size * sizeof *index);
    table->index = index;
    table->index_size = new_size;
    for (uint32_t slot = 0; slot < table->n_slots; slot++)
        if (table->items[slot].id >= 0) index[place_of(table, table->items[slot].id)] = slot;
    return true;
}

uint32_t cl_sequence_table_add(cl_sequence_table *table, cl_alloc *alloc, cellar_seq id,
                               uint32_t pool)
{
    uint32_t slot = cl_sequence_table_find(table, id);
    if (slot != CL_NO_SLOT) return slot;
    if (!grow_index(table, alloc)) return CL_NO_SLOT;
    slot = table->first_vacant;
    if (slot == CL_NO_SLOT) {
        void *items = table->items;
        bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_RUNS, &items, &table->capacity,
                                   (uint64_t)table->n_slots + 1, sizeof(cl_sequence));
        table->items = items;
        if (!ok) return CL_NO_SLOT;
        slot = table->n_slots++;
    } else {
        table->first_vacant = table->items[slot].next_vacant;
    }
    table->items[slot] =
        (cl_sequence){.id = id, .claim = CL_NO_BLOCK, .pool = pool, .next_vacant = CL_NO_SLOT};
    table->index[place_of(table, id)] = slot;
    table->n++;
    return slot;
}

/* Empty one place of the index, moving back those that probed past it. */
static void close_gap(cl_sequence_table *table, uint32_t gap)
{
    uint32_t mask = table->index_size - 1;
    for (uint32_t at = (gap + 1) & mask; table->index[at] != CL_NO_SLOT; at = (at + 1) & mask) {
        uint32_t home = home_of(table, table->items[table->index[at]].id);
        if (((at - home) & mask) < ((at - gap) & mask)) continue;
        table->index[gap] = table->index[at];
        gap = at;
    }
    table->index[gap] = CL_NO_SLOT;
}

void cl_sequence_table_drop(cl_sequence_table *table, cl_alloc *alloc, uint32_t slot)
{
    cl_sequence *sequence = &table->items[slot];
    close_gap(table, place_of(table, sequence->id));
    cl_runs_free(&sequence->runs, alloc);
    cl_runs_free(&sequence->lost, alloc);
    sequence->id = -1;
    sequence->next_vacant = table->first_vacant;
    table->first_vacant = slot;
    table->n--;
}
