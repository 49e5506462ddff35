/*
 * unit_check.c: cellar_check finds what it promises to find.
 *
 * Each test damages one thing inside a sound memory, the way a bug would, asks, and mends it again. This
 * is the only test that writes into the library's own structs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memory.h"
#include "support_small_memory.h"

/* Damaged memories must be refused, with words that name the damage; sound ones not. */
static void assert_corrupt(const small_memory *small, const char *words)
{
    cellar_error error = {0};
    assert_int_equal(cellar_check(small->memory, &error), CELLAR_CORRUPT);
    if (!strstr(error.message, words)) fail_msg("\"%s\" does not say \"%s\"", error.message, words);
}

static void assert_sound(const small_memory *small)
{
    cellar_error error = {0};
    if (cellar_check(small->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

/* Change a place, expect the words, put it back. */
#define DAMAGE(small, place, value, words)                                                         \
    do {                                                                                           \
        __typeof__(place) whole = (place);                                                         \
        (place) = (__typeof__(place))(value);                                                      \
        assert_corrupt(small, words);                                                              \
        (place) = whole;                                                                           \
        assert_sound(small);                                                                       \
    } while (0)

static cl_sequence *sequence_of(small_memory *small, uint32_t group, cellar_seq seq)
{
    cl_sequence_table *table = &small->memory->groups[group].sequences.table;
    return &table->items[cl_sequence_table_find(table, seq)];
}

/* Two pools; sequences 2 and 4 share in pool 0, 3 lives in pool 1. */
static void open_pools(small_memory *small)
{
    small_init(small, 80);
    small_add_attention(small, 0);
    small->config.n_pools = 2;
    small_open(small);
    small_read(small, 2, 10);
    small_read(small, 3, 6);
    assert_int_equal(cellar_copy(small->memory, 2, 4, 0, 5, NULL), CELLAR_OK);
}

static void damaged_counts_and_bits_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_pools(&small);
    cl_cells *cells = &small.memory->groups[0].sequences.cells;
    DAMAGE(&small, cells->refs[0], 3, "cell 0 counts 3 holders, it has 2");
    DAMAGE(&small, cells->refs[20], 1, "cell 20 counts 1 holders, it has 0");
    DAMAGE(&small, cells->free_map[0], cells->free_map[0] | 1, "its free bit is 1");
    DAMAGE(&small, cells->free_map[0], cells->free_map[0] & ~(1ull << 20), "its free bit is 0");
    /* A pool of 40 has 24 cells that only fill up its second block. */
    DAMAGE(&small, cells->free_map[0], cells->free_map[0] | 1ull << 40, "only fills up its block");
    DAMAGE(&small, cells->n_free, cells->n_free + 1, "cells free");
    DAMAGE(&small, cells->n_shared, 4, "shared");
    small_close(&small);
}

static void damaged_pools_and_hints_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_pools(&small);
    cl_pool *pool = &small.memory->groups[0].sequences.cells.pools[1];
    uint32_t *pool_of = small.memory->groups[0].sequences.cells.pool_of;
    DAMAGE(&small, pool->n_free, pool->n_free - 1, "pool 1 has");
    DAMAGE(&small, pool->n_blocks, 3, "pool 1 has");
    DAMAGE(&small, pool->n, 39, "only fills up its block");
    DAMAGE(&small, pool->first_free, pool->first_free + 32, "below the first free cell");
    DAMAGE(&small, pool->end_block, pool->end_block - 1, "pool 1 has");
    DAMAGE(&small, pool->first_unclaimed, 99, "no claim, but searches of pool 1");
    DAMAGE(&small, pool->longest_free, 3, "no stretch of pool 1 is longer than 3");
    DAMAGE(&small, pool_of[3], 0, "pool");
    small_close(&small);
}

static void damaged_runs_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_pools(&small);
    cl_sequence *two = sequence_of(&small, 0, 2), *three = sequence_of(&small, 0, 3);
    cl_cells *cells = &small.memory->groups[0].sequences.cells;
    DAMAGE(&small, two->runs.items[0].shift, 1, "shift is 1");
    DAMAGE(&small, two->runs.items[0].pos, -1, "run at -1");
    DAMAGE(&small, two->runs.items[0].cell, 1000, "covers cells 1000");
    DAMAGE(&small, cells->stored_pos[3], 7, "is stored for 7");
    DAMAGE(&small, three->pool, 0, "the rule says 1");
    cl_sequence_table *table = &small.memory->groups[0].sequences.table;
    uint32_t place = 0;
    while (table->index[place] == CL_NO_SLOT)
        place++;
    DAMAGE(&small, table->index[place], CL_NO_SLOT, "is not found by its name");
    DAMAGE(&small, table->n, 4, "sequences, counted as 4");
    /* A run cut in two by hand could be one. */
    assert_true(two->runs.capacity >= 2 || cl_runs_reserve(&two->runs, &small.memory->alloc, 2));
    two->runs.items[1] = two->runs.items[0];
    cl_run_set_len(&two->runs.items[0], 4);
    two->runs.items[1].pos += 4;
    two->runs.items[1].cell += 4;
    cl_run_set_len(&two->runs.items[1], 6);
    two->runs.n = 2;
    assert_corrupt(&small, "could be one");
    cl_run_set_len(&two->runs.items[0], 6);
    assert_corrupt(&small, "overlap");
    cl_run_set_len(&two->runs.items[0], 10);
    two->runs.n = 1;
    small_close(&small);
}

static void cells_of_another_pool_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_pools(&small);
    cl_sequence *three = sequence_of(&small, 0, 3);
    cl_run *run = &three->runs.items[0];
    uint32_t cell = run->cell;
    run->cell = 0; /* the same positions, in pool 0 */
    assert_corrupt(&small, "is of pool 0, not 1");
    run->cell = cell;
    small_close(&small);
}

static void damaged_claims_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_pools(&small);
    cl_sequences *sequences = &small.memory->groups[0].sequences;
    uint32_t slot = cl_sequence_table_find(&sequences->table, 2);
    uint32_t block = sequences->table.items[slot].claim;
    assert_int_not_equal(block, CL_NO_BLOCK);
    DAMAGE(&small, sequences->cells.claims[block], 0, "which is not its");
    DAMAGE(&small, sequences->table.items[slot].claim, CL_NO_BLOCK, "does not know");
    DAMAGE(&small, sequences->cells.claims[block], 1000, "does not know");
    small_close(&small);
}

static void damaged_losses_are_found(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_add_attention(&small, 8);
    small_open(&small);
    for (int i = 0; i < 4; i++)
        small_read(&small, 1, 8);
    assert_sound(&small);
    for (uint32_t g = 0; g < 2; g++) {
        cl_runs *lost = &sequence_of(&small, g, 1)->lost;
        assert_true(cl_runs_reserve(lost, &small.memory->alloc, 2));
        lost->items[0] = (cl_run){.pos = 4, .cell = 4, .len = 1, .step = 1};
        lost->items[1] = (cl_run){.pos = 5, .cell = 5, .len = 1, .step = 1};
    }
    DAMAGE(&small, sequence_of(&small, 0, 1)->lost.n, 1, "keeps everything");
    DAMAGE(&small, sequence_of(&small, 1, 1)->lost.n, 2, "not written as it should be");
    cl_run *run = &sequence_of(&small, 1, 1)->lost.items[0];
    sequence_of(&small, 1, 1)->lost.n = 1;
    DAMAGE(&small, run->pos, -1, "not written as it should be");
    DAMAGE(&small, run->cell, 9, "not written as it should be");
    DAMAGE(&small, run->shift, 1, "not written as it should be");
    sequence_of(&small, 1, 1)->lost.n = 0;
    small_close(&small);
}

typedef struct labels {
    cellar_cell item[16];
    uint32_t n;
} labels;

static bool take_label(void *context, const cellar_cell *cell)
{
    labels *all = context;
    all->item[all->n++] = *cell;
    return all->n < 16;
}

static labels labels_of(const small_memory *small)
{
    labels all;
    memset(&all, 0, sizeof all);
    assert_int_equal(cellar_visit_cells(small->memory, take_label, &all, NULL), CELLAR_OK);
    return all;
}

/* A window group of 16 cells that is full: a step has to take eight of them. */
static void open_full_window(small_memory *small)
{
    small_init(small, 64);
    small_add_attention(small, 8);
    small_open(small);
    small_read(small, 1, 3);
    small_read(small, 1, 8);
    small_read(small, 1, 5);
    assert_sound(small);
}

static void an_abort_gives_taken_cells_back_as_they_were(void **state)
{
    small_memory small;
    (void)state;
    open_full_window(&small);
    labels before = labels_of(&small);
    assert_int_equal(before.n, 16);
    small_begin(&small, 1, 8);
    labels during = labels_of(&small);
    assert_memory_not_equal(&before, &during, sizeof before);
    cellar_abort(small.memory);
    labels after = labels_of(&small);
    assert_memory_equal(&before, &after, sizeof before);
    small_close(&small);
}

static void damaged_steps_are_found(void **state)
{
    small_memory small;
    (void)state;
    open_full_window(&small);
    small_begin(&small, 1, 8);
    assert_sound(&small);
    cl_group *group = &small.memory->groups[0];
    assert_true(group->n_victims > 0);
    DAMAGE(&small, group->n_participants, 0, "sequences in the step");
    DAMAGE(&small, group->victims[0].run.pos, 20, "does not count it as lost");
    DAMAGE(&small, group->victims[0].is_checkpoint, true, "is not suspended");
    DAMAGE(&small, group->cells_of[0], 1000, "has cell 1000");
    DAMAGE(&small, group->participants[0].kept_from, 1000, "holders");
    DAMAGE(&small, small.memory->step.is_open, false, "of a step that is over");
    cellar_abort(small.memory);
    assert_sound(&small);
    assert_int_equal(cellar_position_min(small.memory, 1), 0);
    small_close(&small);
}

static void damaged_checkpoints_are_found(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 8);
    small_add_recurrent(&small);
    small.config.is_window_full = true;
    small.config.n_sequences = 4;
    small_open(&small);
    small_read(&small, 1, 12);
    assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
    small_read(&small, 1, 12);
    assert_sound(&small);
    cl_checkpoints *checkpoints = &small.memory->checkpoints;
    uint32_t slot = 0;
    while (!checkpoints->is_live[slot])
        slot++;
    cl_pin *pin = &checkpoints->pins[(size_t)slot * checkpoints->n_groups];
    assert_true(pin->runs.n > 0);
    DAMAGE(&small, pin->runs.n, 0, "holders");
    DAMAGE(&small, pin->runs.items[0].shift, 2, "checkpoint 0: cell");
    DAMAGE(&small, checkpoints->is_live[slot], false, "checkpoint");
    DAMAGE(&small, checkpoints->suspended[slot], 1, "suspended by no step");
    DAMAGE(&small, checkpoints->sequences.cells.refs[slot], 2, "counts 2 holders");
    small_close(&small);
}

static void every_kind_of_memory_is_sound_in_every_phase(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 96);
    small_add_attention(&small, 0);
    small_add_attention(&small, 8);
    small_add_recurrent(&small);
    small.config.n_sequences = 4;
    small.config.rollback_bytes = 1000;
    small.config.checkpoint_interval = 6;
    small.config.checkpoint_bytes = 10000;
    small_open(&small);
    assert_sound(&small);
    for (int i = 0; i < 6; i++) {
        small_begin(&small, 1 + i % 2, 7);
        assert_sound(&small);
        small_store(&small);
        assert_sound(&small);
        if (i % 3 == 2)
            cellar_abort(small.memory);
        else
            assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
        assert_sound(&small);
    }
    assert_int_equal(cellar_copy(small.memory, 1, 7, 0, -1, NULL), CELLAR_OK);
    assert_sound(&small);
    cellar_pos from;
    assert_int_equal(cellar_rewind(small.memory, 7, 9, &from, NULL), CELLAR_OK);
    assert_sound(&small);
    assert_int_equal(cellar_keep(small.memory, 7, NULL), CELLAR_OK);
    assert_sound(&small);
    assert_int_equal(cellar_clear(small.memory, NULL), CELLAR_OK);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_counts_and_bits_are_found),
        cmocka_unit_test(damaged_pools_and_hints_are_found),
        cmocka_unit_test(damaged_runs_are_found),
        cmocka_unit_test(cells_of_another_pool_are_found),
        cmocka_unit_test(damaged_claims_are_found),
        cmocka_unit_test(damaged_losses_are_found),
        cmocka_unit_test(an_abort_gives_taken_cells_back_as_they_were),
        cmocka_unit_test(damaged_steps_are_found),
        cmocka_unit_test(damaged_checkpoints_are_found),
        cmocka_unit_test(every_kind_of_memory_is_sound_in_every_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
