/*
 * unit_prefix.c: the prefix library in the cells: what is reused, and why not more.
 *
 * Worlds of all kinds of memories (support_prefix.h), whose contents say what was read, so that each
 * reuse is checked for being of the right tokens. Stores are in unit_prefix_stores.c, random histories
 * in unit_prefix_random.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_prefix.h"

static cellar_prefix_key plain;
static cellar_error error;

static void expect(cellar_status got, cellar_status expected, const char *text)
{
    assert_int_equal(got, expected);
    if (!strstr(error.message, text)) fail_msg("\"%s\" does not say \"%s\"", error.message, text);
}

/* ---- reuse ------------------------------------------------------------------------------------- */

static void a_second_prompt_begins_where_the_first_agrees(void **state)
{
    (void)state;
    world w;
    cellar_token a[60], b[60];
    world_init(&w, WORLD_FULL, 256);
    prefix_world_open(&w);
    world_text(a, 60, 100);
    world_text(b, 60, 100);
    b[40] = 7;
    cellar_prefix told = world_serve(&w, &plain, 0, a, 60);
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.source, CELLAR_PREFIX_FROM_NOWHERE);
    assert_int_equal(told.reason, CELLAR_PREFIX_COLD);
    assert_int_equal(told.diverged_at, -1);

    told = world_serve(&w, &plain, 0, b, 60);
    assert_int_equal(told.matched, 40);
    assert_int_equal(told.reusable, 40);
    assert_int_equal(told.reused, 40);
    assert_int_equal(told.source, CELLAR_PREFIX_FROM_CELLS);
    assert_int_equal(told.reason, CELLAR_PREFIX_DIVERGED);
    assert_int_equal(told.diverged_at, 40);
    assert_int_equal(told.diverged_token, 140);

    told = world_attach(&w, &plain, 1, a,
                        50); /* the beginning of what is known: all but the last */
    assert_int_equal(told.reused, 49);
    assert_int_equal(told.reason, CELLAR_PREFIX_WHOLE);
    prefix_world_close(&w);
}

static void the_next_turn_reads_only_what_is_new_in_every_kind_of_memory(void **state)
{
    (void)state;
    for (world_kind kind = 0; kind < WORLD_KINDS; kind++) {
        world w;
        cellar_token text[120];
        world_init(&w, kind, 256);
        prefix_world_open(&w);
        world_text(text, 120, 1);
        for (uint32_t n = 20; n <= 120; n += 20) {
            cellar_prefix told = world_serve(&w, &plain, 3, text, n);
            assert_int_equal(told.reused, n - 20);
            if (n > 20) assert_int_equal(told.reason, CELLAR_PREFIX_ENDED);
            /* Turns that the next one contains are superfluous. */
            assert_int_equal(world_stats(&w).n_entries, 1);
        }
        prefix_world_close(&w);
    }
}

static void the_best_entry_is_the_one_that_can_be_used_not_the_one_that_agrees_longest(void **state)
{
    (void)state;
    world w;
    cellar_token long_one[100], short_one[60], prompt[100];
    world_init(&w, WORLD_STATE, 256);
    prefix_world_open(&w);
    world_text(long_one, 100, 1);
    world_text(short_one, 60, 1);
    world_text(prompt, 100, 1);
    short_one[50] = 9999;
    prompt[70] = 8888;
    cellar_prefix told = world_attach(&w, &plain, 0, long_one, 100);
    world_read(&w, 0, long_one, 0, 100, false);
    world_retain(&w, 0);
    told = world_attach(&w, &plain, 0, short_one, 60); /* nothing to go on from: read again */
    assert_int_equal(told.matched, 50);
    assert_int_equal(told.reusable, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_STATE_LOST);
    world_read(&w, 0, short_one, 0, 45, true);
    world_read(&w, 0, short_one, 45, 60, true);
    world_retain(&w, 0);
    told = world_attach(&w, &plain, 0, prompt, 100);
    assert_int_equal(told.matched, 70);
    assert_int_equal(told.reused, 45);
    assert_int_equal(told.reason, CELLAR_PREFIX_STATE_LOST);
    assert_int_equal(told.diverged_at, 70);
    prefix_world_close(&w);
}

static void a_window_that_passed_on_is_named(void **state)
{
    (void)state;
    world w;
    cellar_token text[200], other[200];
    world_init(&w, WORLD_WINDOW, 256);
    w.small.config.checkpoint_bytes = 4096;
    prefix_world_open(&w);
    world_text(text, 200, 1);
    world_text(other, 200, 1);
    other[100] = 5000;
    (void)world_attach(&w, &plain, 0, text, 200);
    world_read(&w, 0, text, 0, 50, true);
    world_read(&w, 0, text, 50, 200, false);
    world_retain(&w, 0);
    cellar_prefix told = world_attach(&w, &plain, 0, other, 200);
    assert_int_equal(told.matched, 100);
    assert_int_equal(told.reused, 50);
    assert_int_equal(told.reason, CELLAR_PREFIX_WINDOW_LOST);
    prefix_world_close(&w);
}

static void a_prompt_that_is_still_being_read_can_be_forked_and_waited_for(void **state)
{
    (void)state;
    world w;
    cellar_token text[100], other[100];
    world_init(&w, WORLD_HYBRID, 256);
    prefix_world_open(&w);
    world_text(text, 100, 1);
    world_text(other, 100, 1);
    other[80] = 4000;
    (void)world_attach(&w, &plain, 0, text, 100);
    cellar_prefix told = world_attach(&w, &plain, 1, other, 100);
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.coming, 80);
    assert_int_equal(told.coming_seq, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_COMING);
    expect(cellar_library_release(w.library, 1, &error), CELLAR_OK, "");

    world_read(&w, 0, text, 0, 30, true);
    told = world_attach(&w, &plain, 1, other, 100);
    assert_int_equal(told.matched, 30);
    assert_int_equal(told.reused, 30);
    assert_int_equal(told.coming, 80);
    assert_int_equal(told.source, CELLAR_PREFIX_FROM_CELLS);
    world_read(&w, 1, other, 30, 60, false);
    world_read(&w, 0, text, 30, 100, false); /* each its own */
    world_expect(&w, 0, text, 100);
    world_expect(&w, 1, other, 60);
    world_check(&w);
    expect(cellar_library_release(w.library, 0, &error), CELLAR_OK, "");
    assert_int_equal(world_stats(&w).n_running, 1);
    world_expect(&w, 0, text, 100); /* the memory still holds it */
    prefix_world_close(&w);
}

static void what_was_computed_is_found_although_the_text_became_another(void **state)
{
    (void)state;
    world w;
    cellar_token planned[40], read[40];
    world_init(&w, WORLD_FULL, 256);
    prefix_world_open(&w);
    world_text(planned, 40, 1);
    world_text(read, 40, 1);
    read[20] = 77;
    (void)world_attach(&w, &plain, 0, planned, 40);
    world_read(&w, 0, read, 0, 30, false); /* goes another way than was planned */
    world_check(&w);
    cellar_prefix told = world_attach(&w, &plain, 1, read, 40);
    assert_int_equal(told.reused, 30);
    assert_int_equal(told.coming, 0);
    expect(cellar_library_cut(w.library, 0, 10, &error), CELLAR_OK, "");
    told = world_attach(&w, &plain, 2, planned, 40);
    assert_int_equal(told.reused, 20); /* the fork of before still has them */
    world_retain(&w, 0);               /* cut to ten tokens */
    world_expect(&w, 1, read, 30);
    world_check(&w);
    prefix_world_close(&w);
}

static void a_cancelled_prompt_keeps_what_it_has_read(void **state)
{
    (void)state;
    for (world_kind kind = 0; kind < WORLD_KINDS; kind++) {
        world w;
        cellar_token text[90];
        world_init(&w, kind, 256);
        prefix_world_open(&w);
        world_text(text, 90, 1);
        (void)world_attach(&w, &plain, 0, text, 90);
        world_read(&w, 0, text, 0, 40, false);
        uint64_t number = world_retain(&w, 0);
        cellar_entry entry;
        assert_true(world_entry(&w, number, &entry));
        assert_int_equal(entry.n_tokens, 40);
        assert_int_equal(entry.n_planned, 40);
        assert_true(entry.seq >= w.config.first_seq && !entry.is_running);
        assert_int_equal(cellar_position_max(w.small.memory, 0), -1);
        cellar_prefix told = world_attach(&w, &plain, 0, text, 90);
        assert_int_equal(told.reused, 40);
        assert_int_equal(told.entry, number);
        prefix_world_close(&w);
    }
}

static void nothing_read_is_nothing_retained(void **state)
{
    (void)state;
    world w;
    cellar_token text[5];
    world_init(&w, WORLD_FULL, 64);
    prefix_world_open(&w);
    world_text(text, 5, 1);
    (void)world_attach(&w, &plain, 0, text, 5);
    assert_int_equal(world_retain(&w, 0), 0);
    assert_int_equal(world_stats(&w).n_entries, 0);
    prefix_world_close(&w);
}

/* ---- room -------------------------------------------------------------------------------------- */

static void retained_sequences_make_room_the_last_used_stay(void **state)
{
    (void)state;
    world w;
    cellar_token a[40], b[40], c[40], d[40];
    world_init(&w, WORLD_FULL, 128);
    prefix_world_open(&w);
    world_text(a, 40, 100);
    world_text(b, 40, 200);
    world_text(c, 40, 300);
    world_text(d, 40, 400);
    (void)world_serve(&w, &plain, 0, a, 40);
    (void)world_serve(&w, &plain, 0, b, 40);
    (void)world_serve(&w, &plain, 0, c, 40);
    assert_int_equal(world_attach(&w, &plain, 0, a, 40).reused, 39); /* a was used last */
    expect(cellar_library_release(w.library, 0, &error), CELLAR_OK, "");
    expect(cellar_remove(w.small.memory, 0, 0, -1, &error), CELLAR_OK, "");
    (void)world_serve(&w, &plain, 0, d, 40);
    assert_int_equal(world_stats(&w).n_evicted, 1);
    assert_int_equal(world_stats(&w).n_lost, 1);
    assert_int_equal(world_attach(&w, &plain, 0, a, 40).reused, 39);
    assert_int_equal(world_attach(&w, &plain, 1, c, 40).reused, 39);
    cellar_prefix told = world_attach(&w, &plain, 2, b, 40);
    assert_int_equal(told.reused, 0);
    assert_int_equal(told.reason, CELLAR_PREFIX_EVICTED);
    expect(cellar_library_release(w.library, 2, &error), CELLAR_OK, "");
    cellar_token longer[50];
    world_text(longer, 50, 200);
    told = world_attach(&w, &plain, 3, longer, 50);
    assert_int_equal(told.reason, CELLAR_PREFIX_EVICTED);
    prefix_world_close(&w);
}

static void pinned_and_running_sequences_are_never_evicted(void **state)
{
    (void)state;
    world w;
    cellar_token a[40], b[40], c[100];
    uint64_t number;
    world_init(&w, WORLD_FULL, 128);
    prefix_world_open(&w);
    world_text(a, 40, 100);
    world_text(b, 40, 200);
    world_text(c, 100, 300);
    (void)world_attach(&w, &plain, 0, a, 40);
    world_read(&w, 0, a, 0, 40, false);
    number = world_retain(&w, 0);
    expect(cellar_library_pin(w.library, number, true, &error), CELLAR_OK, "");
    (void)world_attach(&w, &plain, 1, b, 40);
    world_read(&w, 1, b, 0, 40, false);
    expect(cellar_library_make_room(w.library, 0, 48, &error), CELLAR_OK, "");
    expect(cellar_library_make_room(w.library, 0, 50, &error), CELLAR_FULL, "2 of 50");
    assert_int_equal(error.at, 2);
    cellar_batch batch = cellar_batch_init();
    cellar_seq seqs[49];
    for (uint32_t i = 0; i < 49; i++)
        seqs[i] = 2;
    batch.n_tokens = 49;
    batch.seqs = seqs;
    expect(cellar_library_begin(w.library, &batch, &error), CELLAR_FULL, "");
    assert_int_equal(world_stats(&w).n_evicted, 0);
    expect(cellar_library_evict(w.library, number, &error), CELLAR_OK, ""); /* when told to */
    expect(cellar_library_evict(w.library, number, &error), CELLAR_NOT_FOUND, "no entry");
    expect(cellar_library_begin(w.library, &batch, &error), CELLAR_OK, "");
    cellar_abort(w.small.memory);
    prefix_world_close(&w);
}

static void a_batch_that_can_never_fit_evicts_nothing(void **state)
{
    (void)state;
    world w;
    cellar_token a[40];
    world_init(&w, WORLD_FULL, 128);
    prefix_world_open(&w);
    world_text(a, 40, 100);
    (void)world_serve(&w, &plain, 0, a, 40);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 129;
    expect(cellar_library_begin(w.library, &batch, &error), CELLAR_FULL, "");
    assert_int_equal(world_stats(&w).n_retained, 1);
    prefix_world_close(&w);
}

static void what_gives_no_room_is_not_evicted_first(void **state)
{
    (void)state;
    world w;
    cellar_token a[40], b[60], c[60];
    world_init(&w, WORLD_FULL, 128);
    prefix_world_open(&w);
    world_text(a, 40, 100);
    world_text(b, 60, 100);
    world_text(c, 60, 500);
    (void)world_serve(&w, &plain, 0, a, 40);
    (void)world_attach(&w, &plain, 1, b, 60); /* shares the cells of a, and runs on */
    world_read(&w, 1, b, 39, 60, false);
    (void)world_serve(&w, &plain, 0, c, 60);
    expect(cellar_library_make_room(w.library, 0, 30, &error), CELLAR_OK, "");
    cellar_token prompt[41];
    world_text(prompt, 41, 100);
    assert_int_equal(world_stats(&w).n_retained, 1); /* a is older, but c had the room */
    assert_int_equal(world_attach(&w, &plain, 0, c, 60).reused, 0);
    assert_int_equal(world_attach(&w, &plain, 2, prompt, 41).reused, 40);
    prefix_world_close(&w);
}

static void states_are_made_room_for_too(void **state)
{
    (void)state;
    for (world_kind kind = 0; kind < WORLD_KINDS; kind++) {
        world w;
        cellar_token text[30];
        world_init(&w, kind, 512);
        w.small.config.checkpoint_bytes = 0;
        prefix_world_open(&w);
        for (cellar_token i = 0; i < 40; i++) { /* far more than states or windows are there */
            world_text(text, 30, 1000 * i);
            (void)world_serve(&w, &plain, i, text, 30);
        }
        assert_true(world_stats(&w).n_evicted > 0);
        prefix_world_close(&w);
    }
}

static void pools_are_kept_apart(void **state)
{
    (void)state;
    world w;
    cellar_token text[40], other[40];
    world_init(&w, WORLD_FULL, 128);
    w.small.config.n_pools = 2;
    prefix_world_open(&w);
    world_text(text, 40, 100);
    world_text(other, 40, 600);
    (void)world_serve(&w, &plain, 1, text, 40);
    cellar_statistics before, after;
    expect(cellar_stats(w.small.memory, &before, &error), CELLAR_OK, "");
    assert_int_equal(world_attach(&w, &plain, 3, text, 40).reused, 39); /* the same pool: no row */
    expect(cellar_stats(w.small.memory, &after, &error), CELLAR_OK, "");
    assert_int_equal(after.rows_moved, before.rows_moved);
    assert_int_equal(world_attach(&w, &plain, 2, text, 40).reused, 39); /* rows are copied */
    world_read(&w, 2, text, 39, 40, false);
    (void)world_attach(&w, &plain, 4, other, 40); /* 24 cells are left in pool 0 */
    cellar_prefix told = world_attach(&w, &plain, 0, text, 40);
    assert_int_equal(told.reused, 39); /* from the sequence of its own pool: no room is needed */
    prefix_world_close(&w);
}

/* ---- the index --------------------------------------------------------------------------------- */

static void the_index_is_bounded(void **state)
{
    (void)state;
    world w;
    cellar_token text[100];
    world_init(&w, WORLD_FULL, 4096);
    w.config.index_bytes = 16384;
    prefix_world_open(&w);
    for (cellar_token i = 0; i < 50; i++) {
        world_text(text, 20, 1000 * i);
        (void)world_serve(&w, &plain, 0, text, 20);
        assert_true(world_stats(&w).index_bytes <= 16384);
    }
    assert_true(world_stats(&w).n_lost > 0 && world_stats(&w).n_retained > 1);
    world_text(text, 100, 1);
    cellar_prefix told;
    cellar_seq seq = 0;
    cellar_status status = CELLAR_OK;
    for (; seq < 60 && status == CELLAR_OK; seq++) /* running ones are not forgotten for others */
        status = cellar_library_attach(w.library, &plain, seq, text, 100, 99, &told, &error);
    expect(status, CELLAR_FULL, "index");
    assert_int_equal(world_stats(&w).n_running, seq - 1);
    assert_int_equal(world_stats(&w).n_retained, 0);
    prefix_world_close(&w);

    world_init(&w, WORLD_FULL, 4096);
    w.config.n_entries = 5;
    prefix_world_open(&w);
    for (cellar_token i = 0; i < 20; i++) {
        world_text(text, 20, 1000 * i);
        (void)world_serve(&w, &plain, 0, text, 20);
        assert_true(world_stats(&w).n_entries <= 5);
    }
    prefix_world_close(&w);
}

static void the_same_text_twice_is_kept_once(void **state)
{
    (void)state;
    world w;
    cellar_token text[40];
    world_init(&w, WORLD_EVERYTHING, 256);
    prefix_world_open(&w);
    world_text(text, 40, 1);
    for (uint32_t i = 0; i < 5; i++)
        (void)world_serve(&w, &plain, 0, text, 40);
    assert_int_equal(world_stats(&w).n_entries, 1);
    prefix_world_close(&w);
}

int main(void)
{
    plain = cellar_prefix_key_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_prompt_begins_where_the_first_agrees),
        cmocka_unit_test(the_next_turn_reads_only_what_is_new_in_every_kind_of_memory),
        cmocka_unit_test(
            the_best_entry_is_the_one_that_can_be_used_not_the_one_that_agrees_longest),
        cmocka_unit_test(a_window_that_passed_on_is_named),
        cmocka_unit_test(a_prompt_that_is_still_being_read_can_be_forked_and_waited_for),
        cmocka_unit_test(what_was_computed_is_found_although_the_text_became_another),
        cmocka_unit_test(a_cancelled_prompt_keeps_what_it_has_read),
        cmocka_unit_test(nothing_read_is_nothing_retained),
        cmocka_unit_test(retained_sequences_make_room_the_last_used_stay),
        cmocka_unit_test(pinned_and_running_sequences_are_never_evicted),
        cmocka_unit_test(a_batch_that_can_never_fit_evicts_nothing),
        cmocka_unit_test(what_gives_no_room_is_not_evicted_first),
        cmocka_unit_test(states_are_made_room_for_too),
        cmocka_unit_test(pools_are_kept_apart),
        cmocka_unit_test(the_index_is_bounded),
        cmocka_unit_test(the_same_text_twice_is_kept_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
