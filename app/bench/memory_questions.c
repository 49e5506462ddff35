/*
 * memory_questions.c: the table of what only looks, of exports, and of making memories.
 *
 * Exports stand in an open step of 512 tokens at the end of a full memory, so that a mask has n_kv columns for
 * nearly all cells; beside it as many bytes are written by memset, which is as fast as it can be. Growing and
 * shrinking undo each other.
 */
#include <string.h>

#include "bench/memory_world.h"
#include "report.h"

static cellar_seq last_of(const memory_world *w)
{
    return (cellar_seq)w->column.n_sequences - 1;
}

/* ---- questions ------------------------------------------------------------------------------ */

static cellar_status ask_positions(memory_world *w, uint32_t i)
{
    (void)i;
    const cellar_pos n = cellar_position_max(w->memory, last_of(w)) -
                         cellar_position_min(w->memory, last_of(w));
    return n == (cellar_pos)w->n_each - 1
               ? CELLAR_OK
               : report(w->error, CELLAR_CORRUPT, n, "a sequence has not the length it was given");
}

static cellar_status can_continue(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_can_continue(w->memory, last_of(w), (cellar_pos)(w->n_each / 2), NULL, w->error);
}

static cellar_status get_sequence(memory_world *w, uint32_t i)
{
    cellar_sequence_info info;
    (void)i;
    return cellar_get_sequence(w->memory, last_of(w), &info, w->error);
}

static cellar_status read_rows(memory_world *w, uint32_t i)
{
    const uint32_t n = w->n_each < MEMORY_BENCH_BATCH ? w->n_each : MEMORY_BENCH_BATCH;
    float *k = w->room;
    (void)i;
    w->bytes = (double)n * 4 * sizeof *k;
    return cellar_read_rows(w->memory, last_of(w), 0, 0, n, k, k + 2 * MEMORY_BENCH_BATCH,
                            w->error);
}

static cellar_status get_group(memory_world *w, uint32_t i)
{
    cellar_group_info info;
    (void)i;
    const int32_t group = cellar_group_of_layer(w->memory, 0);
    if (cellar_count_groups(w->memory) != 1 || group != 0) {
        return report(w->error, CELLAR_CORRUPT, group, "one layer is not one group");
    }
    return cellar_get_group(w->memory, (uint32_t)group, &info, w->error);
}

static cellar_status get_stats(memory_world *w, uint32_t i)
{
    cellar_statistics statistics;
    (void)i;
    return cellar_stats(w->memory, &statistics, w->error);
}

static bool take_run(void *context, const cellar_run *run)
{
    *(uint64_t *)context += run->len;
    return true;
}

static bool take_cell(void *context, const cellar_cell *cell)
{
    *(uint64_t *)context += cell->refs;
    return true;
}

static bool take_bytes(void *context, const cellar_bytes *bytes)
{
    *(uint64_t *)context += bytes->bytes;
    return true;
}

static bool take_line(void *context, const char *line)
{
    *(uint64_t *)context += (unsigned char)line[0];
    return true;
}

static cellar_status visit_runs(memory_world *w, uint32_t i)
{
    uint64_t sum = 0;
    (void)i;
    return cellar_visit_runs(w->memory, -1, take_run, &sum, w->error);
}

static cellar_status visit_cells(memory_world *w, uint32_t i)
{
    uint64_t sum = 0;
    (void)i;
    return cellar_visit_cells(w->memory, take_cell, &sum, w->error);
}

static cellar_status visit_bytes(memory_world *w, uint32_t i)
{
    uint64_t sum = 0;
    (void)i;
    return cellar_visit_bytes(w->memory, take_bytes, &sum, w->error);
}

static cellar_status dump(memory_world *w, uint32_t i)
{
    uint64_t sum = 0;
    (void)i;
    return cellar_dump(w->memory, take_line, &sum, w->error);
}

static cellar_status check(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_check(w->memory, w->error);
}

/* ---- making --------------------------------------------------------------------------------- */

static cellar_status measure_plan(memory_world *w, uint32_t i)
{
    cellar_layer layer;
    const cellar_config config = memory_world_config(w->bench, &layer);
    cellar_sizes sizes;
    (void)i;
    return cellar_measure(&config, &sizes, w->error);
}

static cellar_status visit_plan(memory_world *w, uint32_t i)
{
    cellar_layer layer;
    const cellar_config config = memory_world_config(w->bench, &layer);
    uint64_t sum = 0;
    (void)i;
    return cellar_visit_plan(&config, take_bytes, &sum, w->error);
}

static cellar_status create_and_destroy(memory_world *w, uint32_t i)
{
    cellar_layer layer;
    const cellar_config config = memory_world_config(w->bench, &layer);
    cellar_memory *memory;
    (void)i;
    const cellar_status status = cellar_create(&config, &memory, w->error);
    cellar_destroy(memory);
    return status;
}

static cellar_status grow(memory_world *w)
{
    return cellar_resize(w->memory, 0, w->bench->n_cells + w->bench->n_cells / 8, w->error);
}

static cellar_status shrink(memory_world *w)
{
    return cellar_resize(w->memory, 0, w->bench->n_cells, w->error);
}

static cellar_status grow_it(memory_world *w, uint32_t i)
{
    (void)i;
    return grow(w);
}

static cellar_status shrink_it(memory_world *w, uint32_t i)
{
    (void)i;
    return shrink(w);
}

static const memory_operation question_operations[] = {
    {"smallest, largest position", "cellar_position_min, max", 0, 256, ask_positions, NULL, NULL},
    {"can it go on in the middle?", "cellar_can_continue", 0, 64, can_continue, NULL, NULL},
    {"describe a sequence", "cellar_get_sequence", 0, 16, get_sequence, NULL, NULL},
    {"read up to 512 rows back", "cellar_read_rows", 0, 4, read_rows, NULL, NULL},
    {"describe a group", "cellar_get_group", 0, 64, get_group, NULL, NULL},
    {"statistics", "cellar_stats", 0, 4, get_stats, NULL, NULL},
    {"visit all runs", "cellar_visit_runs", 0, 4, visit_runs, NULL, NULL},
    {"visit all cells", "cellar_visit_cells", 0, 1, visit_cells, NULL, NULL},
    {"visit the bytes", "cellar_visit_bytes", 0, 16, visit_bytes, NULL, NULL},
    {"map as text", "cellar_dump", 0, 1, dump, NULL, NULL},
    {"check all invariants", "cellar_check", 0, 1, check, NULL, NULL},
    {"measure a configuration", "cellar_measure", 0, 16, measure_plan, NULL, NULL},
    {"visit its plan", "cellar_visit_plan", 0, 16, visit_plan, NULL, NULL},
    {"create and destroy", "cellar_create, destroy", 0, 1, create_and_destroy, NULL, NULL},
    {"grow by an eighth", "cellar_resize", 0, 1, grow_it, NULL, shrink},
    {"shrink again", "cellar_resize", 0, 1, shrink_it, grow, NULL},
};

const memory_section memory_section_questions = {"questions, making", question_operations,
                                                 sizeof question_operations /
                                                     sizeof *question_operations};

/* ---- exports -------------------------------------------------------------------------------- */

static cellar_status extent(memory_world *w, uint32_t i)
{
    cellar_extent found;
    (void)i;
    const cellar_status status = cellar_export_extent(w->memory, 0, 0, 32, &found, NULL, 0,
                                                      w->error);
    if (status == CELLAR_OK) {
        w->n_kv = found.n_kv;
    }
    return status;
}

static cellar_status largest(memory_world *w, uint32_t i)
{
    cellar_extent found;
    (void)i;
    return cellar_export_largest(w->memory, 0, 32, &found, w->error);
}

static cellar_status rows(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_export_rows(w->memory, 0, 0, w->room, w->error);
}

static cellar_status elements(memory_world *w, uint32_t i)
{
    (void)i;
    return cellar_export_elements(w->memory, 0, 0, w->room, w->error);
}

static cellar_status pages(memory_world *w, uint32_t i)
{
    static const uint32_t most_segments = MEMORY_BENCH_BATCH;
    uint32_t *indptr = w->room, *last_length = indptr + most_segments + 1;
    (void)i;
    return cellar_export_pages(w->memory, 0, 0, 1, indptr, last_length + most_segments,
                               w->bench->n_cells * (MEMORY_BENCH_BATCH / 2), last_length, w->error);
}

/* Bytes of a mask; the extent was asked for first, so it is known. */
static double mask_bytes(const memory_world *w, size_t size)
{
    return (double)MEMORY_BENCH_BATCH * w->n_kv * (double)size;
}

static cellar_status mask_f16(memory_world *w, uint32_t i)
{
    (void)i;
    w->bytes = mask_bytes(w, 2);
    return cellar_export_mask(w->memory, 0, 0, w->n_kv, CELLAR_F16, w->room, w->error);
}

static cellar_status mask_f32(memory_world *w, uint32_t i)
{
    (void)i;
    w->bytes = mask_bytes(w, 4);
    return cellar_export_mask(w->memory, 0, 0, w->n_kv, CELLAR_F32, w->room, w->error);
}

static cellar_status write_as_much(memory_world *w, uint32_t i)
{
    w->bytes = mask_bytes(w, 4);
    memset(w->room, (int)i, (size_t)w->bytes);
    return CELLAR_OK;
}

static const memory_operation export_operations[] = {
    {"extent", "cellar_export_extent", OPERATION_IN_STEP, 64, extent, NULL, NULL},
    {"largest extent", "cellar_export_largest", OPERATION_IN_STEP, 64, largest, NULL, NULL},
    {"rows of 512 tokens", "cellar_export_rows", OPERATION_IN_STEP, 16, rows, NULL, NULL},
    {"elements of 512 tokens", "cellar_export_elements", OPERATION_IN_STEP, 16, elements, NULL,
     NULL},
    {"pages of one cell", "cellar_export_pages", OPERATION_IN_STEP, 1, pages, NULL, NULL},
    {"mask of 512 tokens, f16", "cellar_export_mask", OPERATION_IN_STEP, 1, mask_f16, NULL, NULL},
    {"mask of 512 tokens, f32", "cellar_export_mask", OPERATION_IN_STEP, 1, mask_f32, NULL, NULL},
    {"(memset of the f32 mask)", "memset", OPERATION_IN_STEP, 1, write_as_much, NULL, NULL},
};

const memory_section memory_section_exports = {
    "exports", export_operations, sizeof export_operations / sizeof *export_operations};
