/*
 * unit_resize.c: pools grow and shrink under sequences that live in them.
 *
 * Whatever size a pool gets, every sequence holds what it held and its next token sees the same, bit for
 * bit; a size that cannot be had changes nothing at all. Sizes, free cells and bytes are compared with
 * what a memory made in that size has.
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

static void open_plain(drive *d, uint32_t n_cells, uint64_t budget_bytes)
{
    *d = (drive){.n_layers = 1, .seed = 2};
    d->layers[0] = drive_layer(1, 1, 32, 32);
    cellar_config config = cellar_config_init();
    config.n_cells = n_cells;
    config.n_ubatch = 32;
    config.budget_bytes = budget_bytes;
    assert_int_equal(drive_open(d, &config, NULL), CELLAR_OK);
}

static cellar_status resize(const drive *d, uint32_t pool, uint32_t n_cells, cellar_error *error)
{
    return cellar_resize(d->memory, pool, n_cells, error);
}

/* ---- growing --------------------------------------------------------------------------------- */

static void a_full_memory_grows_and_goes_on(void **state)
{
    (void)state;
    drive d, cold;
    open_plain(&d, 50, 0);
    open_plain(&cold, 5000, 0);
    float *out = drive_grab(500 * d.out_size, sizeof *out);
    float *expected = drive_grab(500 * d.out_size, sizeof *out);
    assert_int_equal(drive_append(&d, 0, 1, 50, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&cold, 0, 1, 50, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 51, 1, NULL), CELLAR_FULL);
    assert_int_equal(resize(&d, 0, 51, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_free, 1);
    assert_int_equal(resize(&d, 0, 5000, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_cells, 5000);
    assert_int_equal(stats_of(&d).n_free, 4950);
    assert_int_equal(stats_of(&d).rows_moved, 0);
    assert_int_equal(drive_append(&d, 0, 51, 500, out), CELLAR_OK);
    assert_int_equal(drive_append(&cold, 0, 51, 500, expected), CELLAR_OK);
    assert_memory_equal(out, expected, 500 * d.out_size * sizeof *out);
    assert_sound(&d);
    free(out);
    free(expected);
    drive_close(&d);
    drive_close(&cold);
}

static void growing_beyond_the_budget_is_refused_and_leaves_all_as_it_was(void **state)
{
    (void)state;
    drive d;
    cellar_error error = {0};
    open_plain(&d, 256, 300000);
    assert_int_equal(drive_append(&d, 0, 1, 100, NULL), CELLAR_OK);
    cellar_statistics before = stats_of(&d);
    assert_int_equal(resize(&d, 0, 100000, &error), CELLAR_NO_MEMORY);
    assert_int_equal(error.reason, CELLAR_REASON_BUDGET);
    cellar_statistics after = stats_of(&d);
    assert_memory_equal(&before, &after, sizeof before);
    assert_sound(&d);
    assert_int_equal(resize(&d, 0, 300, &error), CELLAR_OK);
    assert_true(stats_of(&d).sizes.total <= 300000);
    drive_close(&d);
}

/* ---- shrinking ------------------------------------------------------------------------------- */

static void what_lies_behind_the_new_end_moves_below_it(void **state)
{
    (void)state;
    drive d;
    cellar_error error = {0};
    open_plain(&d, 256, 0);
    float *before = drive_grab(d.out_size, sizeof *before);
    float *after = drive_grab(d.out_size, sizeof *after);
    assert_int_equal(drive_append(&d, 0, 1, 100, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 1, 200, 100, NULL), CELLAR_OK);
    assert_int_equal(cellar_copy(d.memory, 1, 2, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(cellar_remove(d.memory, 0, 10, 90, NULL), CELLAR_OK);
    assert_int_equal(drive_probe(&d, 1, 999, before), CELLAR_OK);
    uint64_t rows = stats_of(&d).sizes.bytes[CELLAR_BYTES_ROWS];
    assert_int_equal(resize(&d, 0, 119, &error), CELLAR_FULL);
    assert_int_equal(error.at, 120);
    assert_int_equal(stats_of(&d).n_cells, 256);
    assert_int_equal(resize(&d, 0, 120, &error), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_cells, 120);
    assert_int_equal(stats_of(&d).n_free, 0);
    assert_int_equal(stats_of(&d).n_shared, 100);
    assert_true(stats_of(&d).rows_moved > 0);
    assert_true(stats_of(&d).sizes.bytes[CELLAR_BYTES_ROWS] < rows);
    assert_sound(&d);
    assert_int_equal(resize(&d, 0, 128, &error), CELLAR_OK);
    assert_int_equal(drive_probe(&d, 1, 999, after), CELLAR_OK);
    assert_memory_equal(before, after, d.out_size * sizeof *before);
    assert_int_equal(drive_probe(&d, 2, 999, after), CELLAR_OK);
    assert_memory_equal(before, after, d.out_size * sizeof *before);
    free(before);
    free(after);
    drive_close(&d);
}

static void a_claim_on_what_goes_is_forgotten(void **state)
{
    (void)state;
    drive d;
    open_plain(&d, 128, 0);
    for (cellar_seq seq = 0; seq < 4; seq++)
        assert_int_equal(drive_append(&d, seq, 100 * seq + 1, 2, NULL), CELLAR_OK);
    assert_int_equal(resize(&d, 0, 20, NULL), CELLAR_OK);
    assert_sound(&d);
    for (cellar_seq seq = 0; seq < 4; seq++)
        assert_int_equal(drive_append(&d, seq, 100 * seq + 50, 3, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_free, 0);
    assert_sound(&d);
    drive_close(&d);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static void a_pool_changes_alone(void **state)
{
    (void)state;
    drive d = {.n_layers = 1, .seed = 2};
    d.layers[0] = drive_layer(1, 1, 32, 32);
    cellar_config config = cellar_config_init();
    config.n_cells = 100;
    config.n_pools = 3;
    config.pool_cells = (uint32_t[]){40, 20, 40};
    assert_int_equal(drive_open(&d, &config, NULL), CELLAR_OK);
    for (cellar_seq seq = 0; seq < 3; seq++)
        assert_int_equal(drive_append(&d, seq, 100 * seq + 1, 20, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 1, 150, 1, NULL), CELLAR_FULL);
    assert_int_equal(resize(&d, 1, 90, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_cells, 170);
    assert_int_equal(drive_append(&d, 1, 150, 70, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 900, 21, NULL), CELLAR_FULL);
    assert_int_equal(resize(&d, 0, 20, NULL),
                     CELLAR_OK); /* not the last blocks: they stay, unused */
    assert_sound(&d);
    assert_int_equal(drive_append(&d, 0, 900, 1, NULL), CELLAR_FULL);
    assert_int_equal(resize(&d, 0, 41, NULL), CELLAR_OK);
    assert_int_equal(drive_append(&d, 0, 900, 21, NULL), CELLAR_OK);
    assert_int_equal(resize(&d, 1, 89, NULL), CELLAR_FULL);
    assert_int_equal(cellar_remove(d.memory, 1, 0, 60, NULL), CELLAR_OK);
    assert_int_equal(resize(&d, 1, 30, NULL), CELLAR_OK);
    assert_int_equal(stats_of(&d).n_cells, 41 + 30 + 40);
    assert_sound(&d);
    drive_close(&d);
}

static void random_memories_take_any_size_that_holds_them(void **state)
{
    (void)state;
    uint32_t n_done = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        moving m;
        uint32_t n_pools = 1 + (uint32_t)seed % 3;
        moving_open(&m, seed + 500, 200, n_pools, NULL, 0);
        for (int phase = 0; phase < 12; phase++) {
            for (int i = 0; i < 12; i++)
                moving_change(&m);
            /* Looked at with room for a probe; window groups are of one size from 90 cells on. */
            uint32_t pool = random_below(&m.random, n_pools);
            assert_int_equal(resize(&m.d, pool, 600, NULL), CELLAR_OK);
            size_t size;
            unsigned char *before = moving_look(&m, &size);
            cellar_status status = resize(&m.d, pool, 90 + random_below(&m.random, 400), NULL);
            assert_true(status == CELLAR_OK || status == CELLAR_FULL);
            n_done += status == CELLAR_OK;
            n_refused += status == CELLAR_FULL;
            assert_sound(&m.d);
            assert_int_equal(resize(&m.d, pool, 600, NULL), CELLAR_OK);
            assert_looks_like(&m, before, size);
            assert_int_equal(cellar_compact(m.d.memory, 1000, NULL, NULL), CELLAR_OK);
            assert_looks_like(&m, before, size);
            free(before);
            uint32_t n_cells = 90 + random_below(&m.random, 100);
            status = resize(&m.d, pool, n_cells, NULL);
            assert_true(status == CELLAR_OK || status == CELLAR_FULL);
            n_done += status == CELLAR_OK;
            n_refused += status == CELLAR_FULL;
            assert_sound(&m.d);
        }
        moving_close(&m);
    }
    assert_true(n_done > 100 && n_refused > 0);
}

static void window_groups_follow_by_the_rule_of_the_configuration(void **state)
{
    (void)state;
    moving small, large;
    moving_open(&small, 1, 30, 1, NULL, 0);
    moving_open(&large, 1, 300, 1, NULL, 0);
    assert_int_equal(resize(&small.d, 0, 300, NULL), CELLAR_OK);
    for (uint32_t g = 0; g < cellar_count_groups(large.d.memory); g++) {
        cellar_group_info a, b;
        assert_int_equal(cellar_get_group(small.d.memory, g, &a, NULL), CELLAR_OK);
        assert_int_equal(cellar_get_group(large.d.memory, g, &b, NULL), CELLAR_OK);
        assert_int_equal(a.n_free, b.n_free);
    }
    assert_int_equal(resize(&large.d, 0, 30, NULL), CELLAR_OK);
    for (uint32_t g = 0; g < cellar_count_groups(large.d.memory); g++) {
        cellar_group_info info;
        assert_int_equal(cellar_get_group(large.d.memory, g, &info, NULL), CELLAR_OK);
        assert_int_equal(info.n_free, 30);
    }
    moving_close(&small);
    moving_close(&large);
}

/* ---- what can go wrong ----------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const cellar_allocator allocator = faulty_allocator();
    const uint32_t sizes[] = {90, 1000};
    for (size_t s = 0; s < 2; s++) {
        moving m;
        moving_open(&m, 78, 192, 1, &allocator, 0);
        for (int i = 0; i < 60; i++)
            moving_change(&m);
        for (cellar_seq seq = 2; seq < MOVING_SEQUENCES; seq++)
            assert_int_equal(cellar_remove(m.d.memory, seq, 0, -1, NULL), CELLAR_OK);
        size_t size;
        unsigned char *before = moving_look(&m, &size);
        uint32_t n_refused = 0;
        for (int n = 0;; n++) {
            cellar_error error = {0};
            uint32_t n_cells = stats_of(&m.d).n_cells;
            faulty_allocations_left = n;
            cellar_status status = resize(&m.d, 0, sizes[s], &error);
            faulty_allocations_left = -1;
            assert_looks_like(&m, before, size);
            if (status == CELLAR_OK) break;
            assert_int_equal(status, CELLAR_NO_MEMORY);
            assert_int_equal(error.reason, CELLAR_REASON_ALLOCATOR);
            assert_int_equal(stats_of(&m.d).n_cells, n_cells);
            n_refused++;
        }
        assert_true(n_refused >= 1);
        assert_int_equal(stats_of(&m.d).n_cells, sizes[s]);
        free(before);
        moving_close(&m);
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    drive d;
    open_plain(&d, 64, 0);
    assert_int_equal(cellar_resize(NULL, 0, 64, NULL), CELLAR_INVALID);
    assert_int_equal(resize(&d, 1, 64, NULL), CELLAR_INVALID);
    assert_int_equal(resize(&d, 0, 0, NULL), CELLAR_INVALID);
    assert_int_equal(resize(&d, 0, (1u << 30) + 1, NULL), CELLAR_INVALID);
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = 1;
    assert_int_equal(cellar_begin(d.memory, &batch, NULL), CELLAR_OK);
    assert_int_equal(resize(&d, 0, 128, NULL), CELLAR_BUSY);
    cellar_abort(d.memory);
    drive_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_memory_grows_and_goes_on),
        cmocka_unit_test(growing_beyond_the_budget_is_refused_and_leaves_all_as_it_was),
        cmocka_unit_test(what_lies_behind_the_new_end_moves_below_it),
        cmocka_unit_test(a_claim_on_what_goes_is_forgotten),
        cmocka_unit_test(a_pool_changes_alone),
        cmocka_unit_test(random_memories_take_any_size_that_holds_them),
        cmocka_unit_test(window_groups_follow_by_the_rule_of_the_configuration),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
