/*
 * unit_given_up.c: what window groups give up, in which order, and what is known of it afterwards.
 *
 * Each test is one rule of cellar.h in the smallest memory that shows it; most were found broken by the
 * differential test, which now holds them against its plain model. Cells of a window group here: W +
 * n_sinks + n_ubatch for one sequence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support_session.h"
#include "support_small_memory.h"

static cellar_sequence_info info_of(const small_memory *small, cellar_seq seq)
{
    cellar_sequence_info info;
    assert_int_equal(cellar_get_sequence(small->memory, seq, &info, NULL), CELLAR_OK);
    return info;
}

static uint64_t count_reclaimed(const small_memory *small)
{
    cellar_statistics stats;
    assert_int_equal(cellar_stats(small->memory, &stats, NULL), CELLAR_OK);
    return stats.cells_reclaimed;
}

static void assert_continues(const small_memory *small, cellar_seq seq, cellar_pos n)
{
    cellar_error error;
    if (cellar_can_continue(small->memory, seq, n, NULL, &error) != CELLAR_OK)
        fail_msg("%s", error.message);
}

static void assert_replay(const small_memory *small, cellar_seq seq, cellar_pos n, cellar_pos from)
{
    cellar_pos got = -1;
    assert_int_equal(cellar_can_continue(small->memory, seq, n, &got, NULL), CELLAR_REPLAY);
    assert_int_equal(got, from);
}

/* One window layer with micro-batches of 4. */
static void open_window(small_memory *small, cellar_window window, bool has_full_attention)
{
    small_init(small, 256);
    small_add_attention(small, 1)->window = window;
    if (has_full_attention) small_add_attention(small, 0);
    small->config.n_ubatch = 4;
    small_open(small);
}

static const cellar_window four = {CELLAR_WINDOW_STANDARD, 4, 0};
static const cellar_window one = {CELLAR_WINDOW_STANDARD, 1, 0};
static const cellar_window chunks = {CELLAR_WINDOW_CHUNKED, 4, 0};
static const cellar_window with_sinks = {CELLAR_WINDOW_STANDARD, 4, 2};

/* ---- the order ------------------------------------------------------------------------------- */

/* A window of four for two sequences: 12 cells. */
static void open_twelve(small_memory *small)
{
    small_init(small, 256);
    small_add_attention(small, 4);
    small->config.n_ubatch = 4;
    small->config.n_sequences = 2;
    small_open(small);
}

static void a_long_step_leaves_no_gap_behind_it(void **state)
{
    small_memory small;
    (void)state;
    open_twelve(&small);
    small_read(&small, 1, 6);
    small_read(&small, 1, 30);
    cellar_sequence_info info = info_of(&small, 1);
    assert_int_equal(info.pos_max, 35);
    assert_int_equal(info.n_cells, info.pos_max + 1 - info.pos_min);
    assert_int_equal(info.rewind_min, info.pos_min + 3);
    assert_int_equal(count_reclaimed(&small), 36 - info.n_cells);
    small_close(&small);
}

static void in_a_long_step_what_was_there_before_goes_first(void **state)
{
    small_memory small;
    (void)state;
    open_twelve(&small);
    small_read(&small, 1, 6); /* 0, 1 and 2 are behind the window, an abort needs the others */
    small_begin(&small, 1, 12);
    cellar_abort(small.memory);
    assert_int_equal(info_of(&small, 1).pos_min, 0);
    /* Six are missing: 0 to 2, then 6 to 8 of the step itself; 3 to 5 go when it is committed. */
    small_read(&small, 1, 12);
    assert_int_equal(info_of(&small, 1).pos_min, 9);
    assert_int_equal(info_of(&small, 1).n_cells, 9);
    small_close(&small);
}

static void a_step_that_has_room_uses_no_cell_twice(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 256);
    small_add_attention(&small, 4);
    small.config.n_ubatch = 4;
    small.config.n_sequences = 4; /* 20 cells */
    small_open(&small);
    small_read(&small, 1, 8); /* 0..4 can go; the beginning of the step below is farther behind */
    small_begin(&small, 2, 16);
    float k[4 * SMALL_HEAD] = {0}, out[4 * SMALL_HEAD];
    for (uint32_t u = 0; u < 4; u++)
        assert_int_equal(cellar_store(small.memory, u, 0, k, k, NULL), CELLAR_OK);
    for (uint32_t u = 0; u < 4; u++)
        assert_int_equal(cellar_attend(small.memory, u, 0, k, out, NULL), CELLAR_OK);
    assert_int_equal(cellar_commit(small.memory, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 2).pos_min, 0);
    small_close(&small);
}

/* ---- the count ------------------------------------------------------------------------------- */

static void what_an_abort_cannot_give_back_is_counted(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, four, false);
    small_read(&small, 1, 8);
    small_begin(&small, 2, 2);
    cellar_abort(small.memory);
    assert_int_equal(count_reclaimed(&small), 0);
    small_begin(&small, 2, 2);
    small_store(&small);
    cellar_abort(small.memory);
    assert_int_equal(count_reclaimed(&small), 2);
    assert_int_equal(info_of(&small, 1).n_cells, 6);
    small_close(&small);
}

static void each_holder_of_a_shared_cell_counts(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, four, false);
    small_read(&small, 1, 8);
    assert_int_equal(cellar_copy(small.memory, 1, 2, 0, -1, NULL), CELLAR_OK);
    small_read(&small, 3, 1);
    assert_int_equal(count_reclaimed(&small), 2);
    assert_int_equal(info_of(&small, 1).pos_min, 1);
    assert_int_equal(info_of(&small, 2).pos_min, 1);
    small_close(&small);
}

/* ---- where a sequence can go on -------------------------------------------------------------- */

static void a_window_of_one_can_be_rewound_everywhere(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, one, true);
    small_read(&small, 1, 20);
    assert_int_equal(info_of(&small, 1).rewind_min, 0);
    for (cellar_pos n = 0; n <= 20; n++)
        assert_continues(&small, 1, n);
    small_close(&small);
}

static void a_chunk_can_begin_again_though_it_was_given_up(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, chunks, true);
    small_read(&small, 1, 30);
    assert_continues(&small, 1, 8);
    assert_replay(&small, 1, 11, 8); /* not from 0 */
    cellar_pos from;
    assert_int_equal(cellar_rewind(small.memory, 1, 11, &from, NULL), CELLAR_OK);
    assert_int_equal(from, 8);
    assert_int_equal(info_of(&small, 1).pos_next, 8);
    small_read(&small, 1, 1);
    small_close(&small);
}

static void sinks_can_be_gone_back_to(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, with_sinks, false);
    small_read(&small, 1, 40);
    assert_continues(&small, 1, 2);
    assert_replay(&small, 1, 20, 2); /* both sinks are there */
    small_close(&small);
}

static void the_last_position_given_up_can_be_gone_on_from(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, chunks, false); /* 8 cells, and nobody sees 0..7 from 8 on */
    small_read(&small, 1, 8);
    small_read(&small, 2, 8);
    assert_int_equal(info_of(&small, 1).n_cells, 0);
    assert_int_equal(info_of(&small, 1).pos_next, 8);
    assert_continues(&small, 1, 8);
    small_read(&small, 1, 1);
    assert_int_equal(info_of(&small, 1).pos_min, 8);
    assert_int_equal(info_of(&small, 1).rewind_min, 0);
    small_close(&small);
}

/* ---- gaps that move -------------------------------------------------------------------------- */

static void a_gap_among_the_sinks_is_not_passed_over(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, with_sinks, true);
    small_read(&small, 1, 40);
    assert_continues(&small, 1, 40);
    /* What comes to stand at 0 and 1 was given up; every query sees those. */
    assert_int_equal(cellar_shift(small.memory, 1, 0, -1, -10, NULL), CELLAR_OK);
    assert_replay(&small, 1, 30, 0);
    assert_int_equal(info_of(&small, 1).rewind_min, INT32_MAX);
    small_close(&small);
}

static void a_gap_among_the_sinks_survives_a_session(void **state)
{
    small_memory small, twin;
    parcel file = {0};
    cellar_session *session;
    cellar_load_options options = cellar_load_options_init();
    (void)state;
    for (small_memory *each = &small; each; each = each == &small ? &twin : NULL) {
        small_init(each, 256);
        small_add_attention(each, 1)->window = with_sinks;
        each->config.n_ubatch = 4;
        each->config.n_sequences = 4;
        small_open(each);
    }
    small_read(&small, 1, 40);
    small_read(&small, 2, 40);
    assert_int_equal(cellar_shift(small.memory, 1, 0, -1, -10, NULL), CELLAR_OK);
    assert_int_equal(parcel_write(&file, small.memory, NULL, NULL), CELLAR_OK);
    assert_int_equal(cellar_open_session_bytes(file.bytes, file.size, NULL, &session, NULL),
                     CELLAR_OK);
    assert_int_equal(cellar_load_session(twin.memory, session, &options, NULL), CELLAR_OK);
    assert_replay(&twin, 1, 30, 0);
    assert_continues(&twin, 2, 40);
    assert_replay(&twin, 2, 20, 2);
    cellar_close_session(session);
    parcel_free(&file);
    small_close(&small);
    small_close(&twin);
}

static void dividing_can_bring_a_gap_among_the_sinks(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, with_sinks, true);
    small_read(&small, 1, 40);
    assert_int_equal(cellar_divide(small.memory, 1, 0, 4, 2, NULL), CELLAR_OK); /* 2, 3 -> 1 */
    assert_replay(&small, 1, 40, 1);
    small_close(&small);
}

static void the_next_position_stays_behind_the_last_one(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 256);
    small_add_attention(&small, 4)->window = with_sinks;
    small_add_attention(&small, 1)->window = chunks;
    small.config.n_ubatch = 4;
    small.config.n_sequences = 4;
    small_open(&small);
    small_read(&small, 1, 20);
    small_read(&small, 2, 20);
    cellar_pos n;
    assert_int_equal(cellar_shift_context(small.memory, 1, 3, 8, &n, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).pos_next, 12);
    assert_continues(&small, 1, 12);
    /* The same in two calls. */
    assert_int_equal(cellar_remove(small.memory, 2, 3, 11, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(small.memory, 2, 11, -1, -8, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 2).pos_next, 12);
    assert_continues(&small, 2, 12);
    small_close(&small);
}

static void removing_a_part_forgets_what_was_lost_there(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, four, false);
    small_read(&small, 1, 40);
    assert_int_equal(cellar_remove(small.memory, 1, 10, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_remove(small.memory, 1, 15, -1, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).pos_next, 10); /* not 15: 10..19 were removed before */
    assert_int_equal(cellar_remove(small.memory, 1, 0, 10, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).pos_next, 0);
    small_close(&small);
}

static void a_shift_does_not_land_on_what_was_given_up(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, four, false);
    small_read(&small, 1, 40);
    cellar_error error;
    assert_int_equal(cellar_shift(small.memory, 1, 36, -1, -20, &error), CELLAR_REFUSED);
    assert_int_equal(error.at, 16);
    assert_int_equal(cellar_divide(small.memory, 1, 36, -1, 2, &error), CELLAR_REFUSED);
    assert_int_equal(error.at, 18);
    assert_int_equal(cellar_shift(small.memory, 1, 0, 10, INT32_MAX - 8, &error), CELLAR_INVALID);
    assert_int_equal(cellar_remove(small.memory, 1, 10, 36, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(small.memory, 1, 36, -1, -20, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).pos_next, 20);
    small_close(&small);
}

static void what_is_seen_counts_from_the_end_that_was_given_up(void **state)
{
    small_memory small;
    (void)state;
    open_window(&small, four, false);
    small_read(&small, 1, 8);
    small_read(&small, 2, 1); /* 0 is given up */
    /* Its place is now behind the others: they are out of sight of what comes next. */
    assert_int_equal(cellar_shift(small.memory, 1, 0, 1, 100, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).pos_next, 101);
    small_read(&small, 2, 4);
    assert_int_equal(info_of(&small, 2).n_cells, 5);
    small_close(&small);
}

static void shifts_are_counted_over_all_groups(void **state)
{
    small_memory small;
    (void)state;
    small_init(&small, 256);
    small_add_attention(&small, 4);
    small_add_attention(&small, 8)->window.n_sinks = 3;
    small.config.n_ubatch = 4;
    small_open(&small);
    small_read(&small, 1, 40);
    assert_int_equal(cellar_remove(small.memory, 1, 3, 20, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(small.memory, 1, 0, 3, 2, NULL), CELLAR_OK);
    assert_int_equal(cellar_shift(small.memory, 1, 20, -1, 7, NULL), CELLAR_OK);
    assert_int_equal(info_of(&small, 1).n_shifts, 2);
    small_close(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_step_leaves_no_gap_behind_it),
        cmocka_unit_test(in_a_long_step_what_was_there_before_goes_first),
        cmocka_unit_test(a_step_that_has_room_uses_no_cell_twice),
        cmocka_unit_test(what_an_abort_cannot_give_back_is_counted),
        cmocka_unit_test(each_holder_of_a_shared_cell_counts),
        cmocka_unit_test(a_window_of_one_can_be_rewound_everywhere),
        cmocka_unit_test(a_chunk_can_begin_again_though_it_was_given_up),
        cmocka_unit_test(sinks_can_be_gone_back_to),
        cmocka_unit_test(the_last_position_given_up_can_be_gone_on_from),
        cmocka_unit_test(a_gap_among_the_sinks_is_not_passed_over),
        cmocka_unit_test(a_gap_among_the_sinks_survives_a_session),
        cmocka_unit_test(dividing_can_bring_a_gap_among_the_sinks),
        cmocka_unit_test(the_next_position_stays_behind_the_last_one),
        cmocka_unit_test(removing_a_part_forgets_what_was_lost_there),
        cmocka_unit_test(a_shift_does_not_land_on_what_was_given_up),
        cmocka_unit_test(what_is_seen_counts_from_the_end_that_was_given_up),
        cmocka_unit_test(shifts_are_counted_over_all_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
