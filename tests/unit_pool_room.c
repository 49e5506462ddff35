/*
 * unit_pool_room.c: a copy between pools makes room in a window group, or changes nothing.
 *
 * Two pools, a window of 8 with two sinks, and so little room that the other pool is full of cells which no
 * query sees any more. Refusals, failing allocations and failing stores at every call must leave every
 * sequence able to go on; all but a store that failed half-way must leave everything that can be seen as it
 * was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support_faulty.h"
#include "support_look.h"
#include "support_small_memory.h"

enum { WINDOW = 8, SINKS = 2, UBATCH = 8, ROOM = WINDOW + SINKS + UBATCH, CELLS = 256 };

static cellar_error error;

/* Full attention, a window, and pools of ROOM cells behind it: even sequences in pool 0, odd ones in 1. */
static void make(small_memory *small)
{
    small_init(small, CELLS);
    small->config.n_pools = 2;
    small->config.n_sequences = 2;
    small->config.n_ubatch = UBATCH;
    small_add_attention(small, 0);
    small_add_attention(small, WINDOW)->window.n_sinks = SINKS;
}

static void read_many(small_memory *small, cellar_seq seq, uint32_t n)
{
    for (; n > UBATCH; n -= UBATCH)
        small_read(small, seq, UBATCH);
    small_read(small, seq, n);
}

static cellar_sequence_info describe(const small_memory *small, cellar_seq seq)
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

static bool goes_on(const small_memory *small, cellar_seq seq)
{
    return cellar_can_continue(small->memory, seq, describe(small, seq).pos_next, NULL, NULL) ==
           CELLAR_OK;
}

static void copied(const small_memory *small, cellar_seq from, cellar_seq to)
{
    if (cellar_copy(small->memory, from, to, 0, -1, &error) != CELLAR_OK)
        fail_msg("%s", error.message);
    assert_int_equal(cellar_check(small->memory, NULL), CELLAR_OK);
}

/* ---- room is made ------------------------------------------------------------------------------ */

static void old_cells_of_others_make_room(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    small_open(&small);
    read_many(&small, 0, 9);
    read_many(&small, 1, 60); /* all of the pool's room is taken */
    cellar_sequence_info other = describe(&small, 1);
    copied(&small, 0, 3);
    assert_int_equal(describe(&small, 3).pos_max, 8);
    assert_int_equal(describe(&small, 3).rewind_min, 0); /* nothing of it was left out */
    assert_int_equal(describe(&small, 1).pos_max, other.pos_max);
    assert_true(describe(&small, 1).rewind_min > other.rewind_min);
    assert_true(goes_on(&small, 1) && goes_on(&small, 3));
    assert_true(count_reclaimed(&small) > 60 - ROOM);
    small_close(&small);
}

/* What is copied keeps what it sees; how far it can be rewound depends on the room. */
static void the_copys_own_past_goes_after_that(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    small_open(&small);
    read_many(&small, 0, 50); /* ROOM cells are left of it, more than it sees */
    read_many(&small, 1, 60);
    uint64_t before = count_reclaimed(&small);
    copied(&small, 0, 3);
    assert_true(goes_on(&small, 1) && goes_on(&small, 3) && goes_on(&small, 0));
    assert_int_equal(describe(&small, 3).pos_max, 49);
    assert_true(describe(&small, 3).rewind_min > describe(&small, 0).rewind_min);
    assert_true(count_reclaimed(&small) > before);
    /* Its own next token sees the same as the original's. */
    for (cellar_pos p = 50 - WINDOW + 1; p < 50; p++)
        assert_int_equal(cellar_read_rows(small.memory, 3, 1, p, 1, NULL, NULL, NULL), CELLAR_OK);
    small_close(&small);
}

/* A fork into a sequence that is full itself replaces it, again and again. */
static void what_is_replaced_makes_room(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    small.config.n_sequences = 1; /* a pool cannot hold the window of two */
    small.config.n_ubatch = 2;
    small_open(&small);
    for (uint32_t i = 0; i < 20; i++) {
        small_read(&small, 0, 2);
        small_read(&small, 1, 2);
    }
    for (int again = 0; again < 3; again++) {
        copied(&small, 0, 1);
        assert_true(goes_on(&small, 1));
        assert_int_equal(describe(&small, 1).pos_max, describe(&small, 0).pos_max);
        small_read(&small, 0, 2);
        small_read(&small, 1, 2);
    }
    small_close(&small);
}

/* Cells that only checkpoints hold are given up last, and the checkpoints with them. */
static void checkpoints_make_room_at_last(void **state)
{
    small_memory small;
    cellar_statistics stats;
    (void)state;
    make(&small);
    small.config.n_sequences = 2;
    small_open(&small);
    for (int i = 0; i < 8; i++) {
        small_read(&small, 1, 4);
        assert_int_equal(cellar_checkpoint(small.memory, 1, NULL), CELLAR_OK);
    }
    read_many(&small, 0, 12);
    copied(&small, 0, 3);
    assert_true(goes_on(&small, 1) && goes_on(&small, 3));
    assert_int_equal(cellar_stats(small.memory, &stats, NULL), CELLAR_OK);
    assert_true(stats.checkpoints_dropped > 0);
    small_close(&small);
}

/* ---- or nothing changes ------------------------------------------------------------------------- */

/* What three sequences see in a pool with the room of two is too much. */
static void a_refused_copy_changes_nothing(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    small_open(&small);
    read_many(&small, 0, 20);
    read_many(&small, 1, 20);
    copied(&small, 0, 3);
    look before = look_at(small.memory);
    assert_int_equal(cellar_copy(small.memory, 0, 5, 0, -1, &error), CELLAR_FULL);
    assert_int_equal(error.reason, CELLAR_REASON_NO_CELLS);
    assert_true(error.at > 0);
    assert_true(look_at(small.memory).everything == before.everything);
    assert_int_equal(cellar_check(small.memory, NULL), CELLAR_OK);
    small_close(&small);
}

/* The window would have made room, but the group that keeps everything has none. */
static void room_that_helps_nobody_is_given_back(void **state)
{
    small_memory small;
    (void)state;
    make(&small);
    small.config.n_cells = 128;
    small_open(&small);
    read_many(&small, 0, 30);
    read_many(&small, 1, 60); /* of 64 */
    look before = look_at(small.memory);
    assert_int_equal(cellar_copy(small.memory, 0, 3, 0, -1, &error), CELLAR_FULL);
    assert_true(look_at(small.memory).everything == before.everything);
    assert_int_equal(cellar_check(small.memory, NULL), CELLAR_OK);
    small_close(&small);
}

static void tell(small_memory *small)
{
    make(small);
    small->config.allocator = faulty_allocator();
    small_open(small);
    read_many(small, 0, 50);
    read_many(small, 1, 60);
}

static void every_allocation_that_fails_gives_all_back(void **state)
{
    (void)state;
    int n = 0;
    for (cellar_status status = CELLAR_NO_MEMORY; status != CELLAR_OK; n++) {
        small_memory small;
        tell(&small);
        look before = look_at(small.memory);
        faulty_allocations_left = n;
        status = cellar_copy(small.memory, 0, 5, 0, -1, &error);
        faulty_allocations_left = -1;
        if (status != CELLAR_OK) assert_int_equal(status, CELLAR_NO_MEMORY);
        bool is_same = look_at(small.memory).everything == before.everything;
        assert_true(is_same == (status != CELLAR_OK));
        small_close(&small);
    }
    assert_true(n > 4);
}

/* What a store wrote over before it failed is gone; what the next tokens see never is. */
static void a_store_that_fails_half_way_costs_old_cells_at_most(void **state)
{
    cellar_row_store store = faulty_store();
    uint32_t n_same = 0, n_gave_up = 0;
    (void)state;
    int n = 0;
    for (cellar_status status = CELLAR_IO; status != CELLAR_OK; n++) {
        small_memory small;
        make(&small);
        small_add_attention(&small, 4);     /* another window, in the library's memory */
        small.layers[n % 2].store = &store; /* all rows, or the window's */
        small.layers[1].store = &store;
        small_open(&small);
        read_many(&small, 0, 50);
        read_many(&small, 1, 60);
        look before = look_at(small.memory);
        cellar_sequence_info old = describe(&small, 1);
        faulty_store_calls_left = n / 2;
        status = cellar_copy(small.memory, 0, 5, 0, -1, &error);
        faulty_store_calls_left = -1;
        assert_int_equal(cellar_check(small.memory, NULL), CELLAR_OK);
        assert_true(status == CELLAR_OK || status == CELLAR_IO);
        for (cellar_seq seq = 0; seq < 2; seq++)
            assert_true(goes_on(&small, seq));
        assert_int_equal(describe(&small, 1).pos_max, old.pos_max);
        if (status != CELLAR_OK) {
            assert_int_equal(error.status, CELLAR_IO);
            assert_int_equal(describe(&small, 5).n_cells, 0);
            bool is_same = look_at(small.memory).everything == before.everything;
            n_same += is_same;
            n_gave_up += describe(&small, 1).rewind_min > old.rewind_min;
            copied(&small, 0, 5); /* and again, without a fault */
        }
        small_close(&small);
    }
    assert_true(n > 10 && n_gave_up > 0 && n_same > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_cells_of_others_make_room),
        cmocka_unit_test(the_copys_own_past_goes_after_that),
        cmocka_unit_test(what_is_replaced_makes_room),
        cmocka_unit_test(checkpoints_make_room_at_last),
        cmocka_unit_test(a_refused_copy_changes_nothing),
        cmocka_unit_test(room_that_helps_nobody_is_given_back),
        cmocka_unit_test(every_allocation_that_fails_gives_all_back),
        cmocka_unit_test(a_store_that_fails_half_way_costs_old_cells_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
