/*
 * unit_compaction.c: whole memories are compacted, and nobody can tell.
 *
 * Random memories with windows, checkpoints, pools and several row types are compacted under all sorts of
 * budgets; after each call every invariant is checked, and what every sequence holds and what its next
 * token would see is compared bit for bit. How much there was to gain is asserted where it is known.
 * The bookkeeping alone, with many more operations, is tried in unit_relocate.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support_faulty.h"
#include "support_moving.h"

static void assert_sound(const drive *d)
{
    cellar_error error = {0};
    if (cellar_check(d->memory, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

static cellar_statistics stats_of(const drive *d)
{
    cellar_statistics stats;
    assert_int_equal(cellar_stats(d->memory, &stats, NULL), CELLAR_OK);
    return stats;
}

static void assert_looks_like(moving *m, const unsigned char *before, size_t size)
{
    size_t n;
    unsigned char *now = moving_look(m, &n);
    assert_int_equal(n, size);
    assert_memory_equal(now, before, size);
    free(now);
    assert_sound(&m->d);
}

static void nobody_can_tell(void **state)
{
    (void)state;
    const uint32_t budgets[] = {1, 5, 32, 1000};
    uint64_t n_total = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        moving m;
        moving_open(&m, seed, 192, 1 + seed % 3, NULL, 0);
        for (int phase = 0; phase < 4; phase++) {
            for (int i = 0; i < 25; i++)
                moving_change(&m);
            size_t size;
            unsigned char *before = moving_look(&m, &size);
            uint32_t n_moved = 1, budget = budgets[(seed + (uint64_t)phase) % 4];
            for (int call = 0; n_moved > 0; call++) {
                assert_int_equal(cellar_compact(m.d.memory, budget, &n_moved, NULL), CELLAR_OK);
                assert_true(n_moved <= budget);
                assert_true(call < 3000);
                if (budget > 1 || call % 16 == 0) assert_looks_like(&m, before, size);
                n_total += n_moved;
            }
            assert_looks_like(&m, before, size);
            free(before);
        }
        assert_int_equal(stats_of(&m.d).n_moves, 0);
        moving_close(&m);
    }
    assert_true(n_total > 1000);
}

/* Four sequences that decode side by side in a memory that is nearly full. */
static void side_by_side(drive *d)
{
    *d = (drive){.n_layers = 1, .seed = 2};
    d->layers[0] = drive_layer(1, 1, 8, 8);
    cellar_config config = cellar_config_init();
    config.n_cells = 64;
    config.compaction_threshold = 0.5f;
    assert_int_equal(drive_open(d, &config, NULL), CELLAR_OK);
    for (int i = 0; i < 15; i++)
        for (cellar_seq seq = 0; seq < 4; seq++)
            assert_int_equal(drive_append(d, seq, 1 + 4 * i + seq, 1, NULL), CELLAR_OK);
}

static void the_figure_falls_to_nothing(void **state)
{
    (void)state;
    drive d;
    side_by_side(&d);
    assert_true(stats_of(&d).fragmentation > 0.9f);
    assert_true(stats_of(&d).wants_compaction);
    for (cellar_seq seq = 2; seq < 4; seq++)
        assert_int_equal(cellar_remove(d.memory, seq, 0, -1, NULL), CELLAR_OK);
    uint32_t n_moved = 1;
    while (n_moved > 0)
        assert_int_equal(cellar_compact(d.memory, 7, &n_moved, NULL), CELLAR_OK);
    cellar_statistics s = stats_of(&d);
    assert_true(s.fragmentation == 0);
    assert_false(s.wants_compaction);
    assert_int_equal(s.n_runs, 2);
    assert_true(s.rows_moved > 0);
    assert_sound(&d);
    drive_close(&d);
}

static void forks_do_not_ask_for_what_cannot_be_done(void **state)
{
    (void)state;
    drive d;
    d = (drive){.n_layers = 1, .seed = 2};
    d.layers[0] = drive_layer(1, 1, 8, 8);
    cellar_config config = cellar_config_init();
    config.n_cells = 512;
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 1, 40, NULL), CELLAR_OK);
    for (cellar_seq seq = 1; seq < 6; seq++)
        assert_int_equal(cellar_copy(d.memory, 0, seq, 0, -1, NULL), CELLAR_OK);
    for (cellar_seq seq = 0; seq < 6; seq++)
        assert_int_equal(drive_append(&d, seq, 100 * seq + 100, 20, NULL), CELLAR_OK);
    assert_true(stats_of(&d).fragmentation == 0);
    uint64_t n_moved = stats_of(&d).rows_moved;
    uint32_t n = 0;
    assert_int_equal(cellar_compact(d.memory, 1000, &n, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).rows_moved - n_moved, n);
    assert_true(stats_of(&d).fragmentation == 0);
    assert_int_equal(stats_of(&d).n_shared, 40);
    assert_sound(&d);
    drive_close(&d);
}

static void wrong_calls_are_refused_and_no_rows_is_no_work(void **state)
{
    (void)state;
    drive d;
    uint32_t n_moved = 99;
    side_by_side(&d);
    assert_int_equal(cellar_compact(NULL, 1, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_compact(d.memory, 0, &n_moved, NULL), CELLAR_OK);
    assert_int_equal(n_moved, 0);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(cellar_compact(d.memory, 1, &n_moved, NULL), CELLAR_BUSY);
    cellar_abort(d.memory);
    drive_close(&d);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const cellar_allocator allocator = faulty_allocator();
    moving m;
    moving_open(&m, 77, 192, 2, &allocator, 0);
    for (int i = 0; i < 80; i++)
        moving_change(&m);
    size_t size;
    unsigned char *before = moving_look(&m, &size);
    uint32_t n_refused = 0, n_moved = 1;
    for (int n = 0; n < 40; n++) {
        faulty_allocations_left = n;
        cellar_status status = cellar_compact(m.d.memory, 1000, &n_moved, NULL);
        faulty_allocations_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        n_refused += status != CELLAR_OK;
        assert_looks_like(&m, before, size);
    }
    assert_true(n_refused >= 2);
    free(before);
    moving_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_can_tell),
        cmocka_unit_test(the_figure_falls_to_nothing),
        cmocka_unit_test(forks_do_not_ask_for_what_cannot_be_done),
        cmocka_unit_test(wrong_calls_are_refused_and_no_rows_is_no_work),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
