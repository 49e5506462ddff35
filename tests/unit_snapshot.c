/*
 * unit_snapshot.c: what is in memory, as the library shows it: groups, counts, runs, cells.
 *
 * Small memories whose every cell is known; fragmentation is counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_small_memory.h"

static cellar_statistics stats_of(const small_memory *small)
{
    cellar_statistics statistics;
    memset(&statistics, 0xff, sizeof statistics);
    assert_int_equal(cellar_stats(small->memory, &statistics, NULL), CELLAR_OK);
    return statistics;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void groups_are_described_and_found_by_layer(void **state)
{
    small_memory small;
    cellar_group_info info;
    (void)state;
    small_init(&small, 100);
    small_add_attention(&small, 0);
    small_add_attention(&small, 8);
    small_add_recurrent(&small);
    small_add_attention(&small, 0)->kind = CELLAR_LAYER_NONE;
    small_add_attention(&small, 0)->reads_layer = 0;
    small.config.n_sequences = 3;
    small_open(&small);
    assert_int_equal(cellar_count_groups(small.memory), 3);
    assert_int_equal(cellar_group_of_layer(small.memory, 0), 0);
    assert_int_equal(cellar_group_of_layer(small.memory, 1), 1);
    assert_int_equal(cellar_group_of_layer(small.memory, 2), 2);
    assert_int_equal(cellar_group_of_layer(small.memory, 3), -1);
    assert_int_equal(cellar_group_of_layer(small.memory, 4), 0);
    assert_int_equal(cellar_group_of_layer(small.memory, 5), -1);
    small_read(&small, 9, 7);

    assert_int_equal(cellar_get_group(small.memory, 0, &info, NULL), CELLAR_OK);
    assert_int_equal(info.kind, CELLAR_LAYER_ATTENTION);
    assert_int_equal(info.window.kind, CELLAR_WINDOW_NONE);
    assert_int_equal(info.n_layers, 2);
    assert_int_equal(info.n_cells, 128); /* 100 fill four blocks */
    assert_int_equal(info.n_used, 7);
    assert_int_equal(info.n_free, 93);
    assert_int_equal(info.row_bytes, 2 * SMALL_HEAD * 2); /* the last layer reads the first's */
    assert_false(info.is_external);

    assert_int_equal(cellar_get_group(small.memory, 1, &info, NULL), CELLAR_OK);
    assert_int_equal(info.window.kind, CELLAR_WINDOW_STANDARD);
    assert_int_equal(info.window.size, 8);
    assert_int_equal(info.n_used + info.n_free, 3 * 8 + 8);

    assert_int_equal(cellar_get_group(small.memory, 2, &info, NULL), CELLAR_OK);
    assert_int_equal(info.kind, CELLAR_LAYER_RECURRENT);
    assert_int_equal(info.n_layers, 1);
    assert_int_equal(info.n_used, 1);
    assert_int_equal(info.n_used + info.n_free, 2 * 3);
    assert_true(info.row_bytes >= (16 + 24) * 4);
    small_close(&small);
}

static void questions_about_nothing_are_answered_or_refused(void **state)
{
    small_memory small;
    cellar_group_info info;
    cellar_statistics statistics;
    cellar_error error = {0};
    (void)state;
    assert_int_equal(cellar_count_groups(NULL), 0);
    assert_int_equal(cellar_group_of_layer(NULL, 0), -1);
    assert_int_equal(cellar_get_group(NULL, 0, &info, &error), CELLAR_INVALID);
    assert_int_equal(cellar_stats(NULL, &statistics, &error), CELLAR_INVALID);
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small_open(&small);
    assert_int_equal(cellar_get_group(small.memory, 1, &info, &error), CELLAR_INVALID);
    assert_string_equal(error.message, "group 1: the memory has 1");
    assert_int_equal(error.at, 1);
    assert_int_equal(cellar_get_group(small.memory, 0, NULL, &error), CELLAR_INVALID);
    assert_int_equal(cellar_stats(small.memory, NULL, &error), CELLAR_INVALID);
    assert_int_equal(cellar_visit_runs(small.memory, -1, NULL, NULL, &error), CELLAR_INVALID);
    assert_int_equal(cellar_visit_cells(small.memory, NULL, NULL, &error), CELLAR_INVALID);
    small_close(&small);
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void counts_speak_of_the_largest_group_that_attends(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 100);
    small_add_recurrent(&small);
    small_add_attention(&small, 8);
    small_add_attention(&small, 0);
    small.config.n_sequences = 2;
    small_open(&small);
    small_read(&small, 1, 10);
    small_read(&small, 2, 5);
    assert_int_equal(cellar_copy(small.memory, 1, 3, 0, -1, NULL), CELLAR_OK);
    cellar_statistics s = stats_of(&small);
    assert_int_equal(s.n_cells, 100);
    assert_int_equal(s.n_used, 15);
    assert_int_equal(s.n_free, 85);
    assert_int_equal(s.n_shared, 10);
    assert_int_equal(s.n_sequences, 3);
    assert_true(s.n_runs >= 3 * 3);
    assert_int_equal(s.rows_written, 2 * 15);
    assert_int_equal(s.n_moves, 0);
    small_close(&small);
}

static void a_memory_of_states_alone_counts_states(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 100);
    small_add_recurrent(&small);
    small.config.n_sequences = 5;
    small_open(&small);
    small_read(&small, 1, 10);
    small_read(&small, 2, 3);
    cellar_statistics s = stats_of(&small);
    assert_int_equal(s.n_cells, 10);
    assert_int_equal(s.n_used, 2);
    assert_int_equal(s.n_sequences, 2);
    assert_true(s.fragmentation == 0);
    small_close(&small);
}

static void reserved_cells_count_as_used_and_as_nobodys(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_open(&small);
    small_begin(&small, 1, 5);
    cellar_statistics s = stats_of(&small);
    assert_int_equal(s.n_used, 5);
    assert_int_equal(s.n_sequences, 0);
    assert_int_equal(s.n_runs, 0);
    cellar_abort(small.memory);
    assert_int_equal(stats_of(&small).n_used, 0);
    small_close(&small);
}

static void the_longest_stretch_of_free_cells_is_found(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 128);
    small_add_attention(&small, 0);
    small_open(&small);
    assert_int_equal(stats_of(&small).longest_free, 128);
    small_read(&small, 1, 100);
    assert_int_equal(stats_of(&small).longest_free, 28);
    assert_int_equal(cellar_remove(small.memory, 1, 20, 60, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&small).longest_free, 40);
    small_close(&small);
}

static void what_is_given_up_behind_a_window_is_counted(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 100);
    small_add_attention(&small, 8);
    small_open(&small); /* 8 + 8 cells */
    for (int i = 0; i < 5; i++)
        small_read(&small, 1, 8);
    cellar_statistics s = stats_of(&small);
    assert_int_equal(s.n_cells, 16);
    assert_int_equal(s.cells_reclaimed, 5 * 8 - s.n_used);
    small_close(&small);
}

static void checkpoints_are_counted(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 100);
    small_add_attention(&small, 8);
    small.config.is_window_full = true;
    small_open(&small);
    for (int i = 0; i < 3; i++) {
        small_read(&small, 1, 4);
        assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
        assert_int_equal(stats_of(&small).n_checkpoints, i + 1);
    }
    assert_int_equal(cellar_drop_checkpoints(small.memory, 1, 0, 9, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&small).n_checkpoints, 1);
    assert_int_equal(stats_of(&small).checkpoints_dropped, 0); /* told, not for want of room */
    small_close(&small);
}

/* ---- fragmentation --------------------------------------------------------------------------- */

static void a_stretch_is_not_fragmented_whatever_is_missing_or_shifted(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 128);
    small_add_attention(&small, 0);
    small.config.compaction_threshold = 0.5f;
    small_open(&small);
    assert_true(stats_of(&small).fragmentation == 0);
    small_read(&small, 1, 64);
    assert_true(stats_of(&small).fragmentation == 0);
    assert_int_equal(cellar_remove(small.memory, 1, 20, 30, NULL), CELLAR_OK);
    assert_true(stats_of(&small).fragmentation == 0); /* a gap */
    assert_int_equal(cellar_shift(small.memory, 1, 30, -1, -10, NULL), CELLAR_OK);
    assert_true(stats_of(&small).fragmentation == 0); /* closed, but with another shift */
    assert_false(stats_of(&small).wants_compaction);
    small_close(&small);
}

/* Fill the memory, free every other cell, and read something into the holes. */
static void scatter(small_memory *small, uint32_t n)
{
    small_read(small, 1, 64);
    for (cellar_pos p = 0; p < 64; p += 2)
        assert_int_equal(cellar_remove(small->memory, 1, p, p + 1, NULL), CELLAR_OK);
    small_read(small, 2, n);
}

static void places_that_go_on_elsewhere_count_by_32_cells(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_open(&small);
    scatter(&small, 2);
    /* Sequence 1: 32 single cells with gaps: no break. Sequence 2: two cells, one break; 34 held. */
    assert_float_equal(stats_of(&small).fragmentation, 32.0f / 34.0f, 1e-6);
    small_close(&small);
}

static void fragmentation_ends_at_one_and_asks_for_compaction(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small.config.compaction_threshold = 0.9f;
    small_open(&small);
    scatter(&small, 20);
    cellar_statistics s = stats_of(&small);
    assert_true(s.fragmentation == 1);
    assert_true(s.wants_compaction);
    assert_int_equal(cellar_remove(small.memory, 2, 0, -1, NULL), CELLAR_OK);
    s = stats_of(&small);
    assert_true(s.fragmentation == 0);
    assert_false(s.wants_compaction);
    small_close(&small);
}

/* ---- runs and cells -------------------------------------------------------------------------- */

enum { MOST_SHOWN = 64 };

typedef struct shown_runs {
    cellar_run item[MOST_SHOWN];
    uint32_t n, most;
} shown_runs;

static bool take_run(void *context, const cellar_run *run)
{
    shown_runs *shown = context;
    assert_true(shown->n < MOST_SHOWN);
    shown->item[shown->n++] = *run;
    return shown->n < shown->most;
}

typedef struct shown_cells {
    cellar_cell item[MOST_SHOWN];
    uint32_t n, most;
} shown_cells;

static bool take_cell(void *context, const cellar_cell *cell)
{
    shown_cells *shown = context;
    assert_true(shown->n < MOST_SHOWN);
    shown->item[shown->n++] = *cell;
    return shown->n < shown->most;
}

static void runs_name_their_group_shift_and_sequence(void **state)
{
    small_memory small;
    shown_runs shown = {.most = MOST_SHOWN};
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_add_attention(&small, 8);
    small.config.is_window_full = true;
    small_open(&small);
    small_read(&small, 4, 6);
    assert_int_equal(cellar_shift(small.memory, 4, 3, -1, 10, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_runs(small.memory, 4, take_run, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 4);
    for (uint32_t g = 0; g < 2; g++) {
        const cellar_run *first = &shown.item[2 * g], *second = first + 1;
        assert_int_equal(first->group, g);
        assert_int_equal(first->seq, 4);
        assert_int_equal(first->pos, 0);
        assert_int_equal(first->len, 3);
        assert_int_equal(first->step, 1);
        assert_int_equal(first->shift, 0);
        assert_int_equal(second->group, g);
        assert_int_equal(second->pos, 13);
        assert_int_equal(second->cell, first->cell + 3);
        assert_int_equal(second->shift, 10);
    }
    shown = (shown_runs){.most = 3};
    assert_int_equal(cellar_visit_runs(small.memory, -1, take_run, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 3);
    shown = (shown_runs){.most = MOST_SHOWN};
    assert_int_equal(cellar_visit_runs(small.memory, 5, take_run, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 0);
    small_close(&small);
}

static void cells_name_their_group_pool_and_point(void **state)
{
    small_memory small;
    shown_cells shown = {.most = MOST_SHOWN};
    (void)state;
    small_init(&small, 64);
    small_add_attention(&small, 0);
    small_add_attention(&small, 8);
    small.config.n_pools = 2;
    small.config.is_window_full = true;
    small_open(&small);
    small_read(&small, 3, 4);
    small_begin(&small, 2, 1); /* reserved ones are shown too */
    assert_int_equal(cellar_visit_cells(small.memory, take_cell, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 10);
    for (uint32_t i = 0; i < shown.n; i++) {
        const cellar_cell *cell = &shown.item[i];
        assert_int_equal(cell->group, i / 5);
        assert_int_equal(cell->pool, i % 5 == 0 ? 0 : 1);
        assert_int_equal(cell->stored_pos, i % 5 == 0 ? 0 : i % 5 - 1);
        assert_int_equal(cell->point.y, cell->stored_pos);
        assert_int_equal(cell->point.x, cell->stored_pos);
        assert_int_equal(cell->token, 100 + cell->stored_pos);
        assert_int_equal(cell->refs, 1);
    }
    cellar_abort(small.memory);
    shown = (shown_cells){.most = 2};
    assert_int_equal(cellar_visit_cells(small.memory, take_cell, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 2);
    small_close(&small);
}

static void points_of_an_image_are_those_that_were_given(void **state)
{
    small_memory small;
    shown_cells shown = {.most = MOST_SHOWN};
    (void)state;
    small_init(&small, 32);
    cellar_layer *layer = small_add_attention(&small, 0);
    layer->rope.kind = CELLAR_ROPE_MROPE;
    layer->rope.sections[0] = layer->rope.sections[1] = 8;
    small_open(&small);
    cellar_point points[3] = {{0, 0}, {5, 5}, {5, 6}};
    cellar_pos positions[3] = {0, 5, 5};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 3;
    batch.positions = positions;
    batch.points = points;
    assert_int_equal(cellar_begin(small.memory, &batch, NULL), CELLAR_OK);
    small_store(&small);
    assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
    assert_int_equal(cellar_visit_cells(small.memory, take_cell, &shown, NULL), CELLAR_OK);
    assert_int_equal(shown.n, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(shown.item[i].stored_pos, positions[i]);
        assert_int_equal(shown.item[i].point.y, points[i].y);
        assert_int_equal(shown.item[i].point.x, points[i].x);
        assert_int_equal(shown.item[i].token, -1);
    }
    small_close(&small);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

typedef struct shown_checkpoints {
    cellar_checkpoint_info item[MOST_SHOWN];
    uint32_t n, most;
} shown_checkpoints;

static bool take_checkpoint(void *context, const cellar_checkpoint_info *info)
{
    shown_checkpoints *shown = context;
    assert_true(shown->n < MOST_SHOWN);
    shown->item[shown->n++] = *info;
    return shown->n < shown->most;
}

static shown_checkpoints checkpoints_of(const small_memory *small, cellar_seq seq, uint32_t most)
{
    shown_checkpoints shown = {.most = most};
    assert_int_equal(cellar_visit_checkpoints(small->memory, seq, take_checkpoint, &shown, NULL),
                     CELLAR_OK);
    return shown;
}

static void checkpoints_show_what_they_hold_and_who_has_them(void **state)
{
    small_memory small;
    cellar_error error = {0};
    (void)state;
    small_init(&small, 100);
    small_add_attention(&small, 8);
    small_add_recurrent(&small);
    small.config.is_window_full = true;
    small.config.n_sequences = 4;
    small_open(&small);
    for (int i = 0; i < 2; i++) {
        small_read(&small, 1, 6);
        assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
    }
    assert_int_equal(cellar_copy(small.memory, 1, 2, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(cellar_drop_checkpoints(small.memory, 2, 12, -1, NULL), CELLAR_OK);
    shown_checkpoints shown = checkpoints_of(&small, 1, MOST_SHOWN);
    assert_int_equal(shown.n, 2);
    assert_int_equal(shown.item[0].position, 6);
    assert_int_equal(shown.item[0].n_holders, 2);
    assert_int_equal(shown.item[0].n_cells, 6);
    assert_int_equal(shown.item[1].position, 12);
    assert_int_equal(shown.item[1].n_holders, 1);
    assert_int_equal(shown.item[1].n_cells, 7); /* what a query at 12 sees */
    assert_int_not_equal(shown.item[0].state, CELLAR_NO_STATE);
    assert_int_not_equal(shown.item[1].state, shown.item[0].state);
    assert_int_equal(checkpoints_of(&small, 2, MOST_SHOWN).n, 1);
    assert_int_equal(checkpoints_of(&small, 3, MOST_SHOWN).n, 0);
    assert_int_equal(checkpoints_of(&small, 1, 1).n, 1);
    assert_int_equal(cellar_visit_checkpoints(small.memory, 1, NULL, NULL, &error), CELLAR_INVALID);
    assert_int_equal(cellar_visit_checkpoints(small.memory, -1, take_checkpoint, &shown, &error),
                     CELLAR_INVALID);
    small_close(&small);
}

static void a_memory_that_needs_no_checkpoints_shows_none(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 32);
    small_add_attention(&small, 0);
    small_open(&small);
    small_read(&small, 1, 6);
    assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
    assert_int_equal(checkpoints_of(&small, 1, MOST_SHOWN).n, 0);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_described_and_found_by_layer),
        cmocka_unit_test(questions_about_nothing_are_answered_or_refused),
        cmocka_unit_test(counts_speak_of_the_largest_group_that_attends),
        cmocka_unit_test(a_memory_of_states_alone_counts_states),
        cmocka_unit_test(reserved_cells_count_as_used_and_as_nobodys),
        cmocka_unit_test(the_longest_stretch_of_free_cells_is_found),
        cmocka_unit_test(what_is_given_up_behind_a_window_is_counted),
        cmocka_unit_test(checkpoints_are_counted),
        cmocka_unit_test(a_stretch_is_not_fragmented_whatever_is_missing_or_shifted),
        cmocka_unit_test(places_that_go_on_elsewhere_count_by_32_cells),
        cmocka_unit_test(fragmentation_ends_at_one_and_asks_for_compaction),
        cmocka_unit_test(runs_name_their_group_shift_and_sequence),
        cmocka_unit_test(cells_name_their_group_pool_and_point),
        cmocka_unit_test(points_of_an_image_are_those_that_were_given),
        cmocka_unit_test(checkpoints_show_what_they_hold_and_who_has_them),
        cmocka_unit_test(a_memory_that_needs_no_checkpoints_shows_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
