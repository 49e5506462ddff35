/*
 * snapshot.c: what is in memory now: counts, runs, cells. One look, no effect.
 *
 * These are the library's windows for tests, tools and curious people. They read the same structures
 * that operations edit, so they show the state itself and not a copy that may be stale; while a step
 * is open its reserved cells count as used but belong to no sequence yet.
 */
#include "error.h"
#include "memory.h"

cellar_status cellar_stats(const cellar_memory *memory, cellar_statistics *out, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!out) CL_FAIL(error, CELLAR_INVALID, -1, "out is NULL");
    *out = (cellar_statistics){0};
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_sequences *sequences = &memory->groups[g].sequences;
        const cl_cells *cells = &sequences->cells;
        out->n_cells += cells->n;
        out->n_free += cells->n_free;
        out->n_shared += cells->n_shared;
        uint32_t longest = cl_cells_longest_free(cells), n_sequences = 0;
        if (longest > out->longest_free) out->longest_free = longest;
        for (uint32_t slot = 0; slot < sequences->table.n_slots; slot++) {
            const cl_sequence *sequence = &sequences->table.items[slot];
            if (sequence->id < 0 || sequence->runs.n == 0) continue;
            n_sequences++;
            out->n_runs += sequence->runs.n;
        }
        if (n_sequences > out->n_sequences) out->n_sequences = n_sequences;
    }
    out->n_used = out->n_cells - out->n_free;
    for (int kind = 0; kind < CELLAR_BYTES_KINDS; kind++) {
        out->sizes.bytes[kind] = memory->alloc.bytes[kind];
        out->sizes.total += memory->alloc.bytes[kind];
    }
    out->rows_written = memory->rows_written;
    return CELLAR_OK;
}

static bool visit_list(cellar_seq seq, const cl_runs *runs, cellar_run_visitor visitor,
                       void *context)
{
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        cellar_run shown = {seq, run->pos, run->cell, run->len, run->step, run->shift, 0};
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
            if (!visit_list(seq, cl_memory_runs(memory, g, seq), visitor, context))
                return CELLAR_OK;
            continue;
        }
        for (uint32_t slot = 0; slot < table->n_slots; slot++) {
            const cl_sequence *sequence = &table->items[slot];
            if (sequence->id < 0) continue;
            if (!visit_list(sequence->id, &sequence->runs, visitor, context)) return CELLAR_OK;
        }
    }
    return CELLAR_OK;
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
            cellar_cell shown = {
                cell, cells->refs[cell], cells->stored_pos[cell], cells->token[cell], {0, 0}, 0, 0};
            if (!visitor(context, &shown)) return CELLAR_OK;
        }
    }
    return CELLAR_OK;
}
