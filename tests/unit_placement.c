/*
 * unit_placement.c: the free map and where new tokens go.
 *
 * Free cells are interchangeable: n of them always hold n tokens. Beyond that the placement has
 * manners, and these are tested as manners: it goes on behind the tail, prefers one stretch, leaves
 * claimed blocks alone while it can, and needs few stretches when nothing is contiguous.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bitmap.h"
#include "placement.h"

static uint64_t random_state = 7;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33) % n;
}

static cl_alloc alloc;
static cl_pool pool;

static cl_cells new_cells(uint32_t n)
{
    cellar_allocator none = {NULL, NULL, NULL, NULL};
    cl_alloc_init(&alloc, &none, 0);
    cl_cells cells;
    pool = (cl_pool){.n = n};
    assert_true(cl_cells_create(&cells, &pool, 1, (cl_cells_kind){false, false}, &alloc));
    return cells;
}

static void bit_ranges_equal_single_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        uint64_t words[4], expected[4];
        for (int i = 0; i < 4; i++)
            words[i] = expected[i] = random_state * (2 * (uint64_t)i + 1);
        uint32_t first = random_below(256), n = random_below(257 - first);
        bool set = random_below(2) != 0;
        if (set)
            cl_bitmap_set(words, first, n);
        else
            cl_bitmap_clear(words, first, n);
        for (uint32_t i = first; i < first + n; i++) {
            if (set)
                expected[i / 64] |= 1ull << (i % 64);
            else
                expected[i / 64] &= ~(1ull << (i % 64));
        }
        assert_memory_equal(words, expected, sizeof words);
    }
}

static void masks_are_empty_outside_their_range(void **state)
{
    (void)state;
    assert_true(cl_bitmap_mask(2, 93, 2) == 0);
    assert_true(cl_bitmap_mask(0, 93, 2) == 0);
    assert_true(cl_bitmap_mask(1, 93, 2) == 3ull << 29);
    assert_true(cl_bitmap_mask(1, 0, 256) == ~0ull);
    assert_true(cl_bitmap_mask(0, 64, 64) == 0);
}

/* Take random cells away. */
static void fragment(cl_cells *cells, uint32_t one_in)
{
    for (uint32_t i = 0; i < cells->pools[0].n; i++)
        if (random_below(one_in) == 0) cl_cells_take(cells, i, 1, 1);
}

static void n_free_cells_always_hold_n_tokens(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        cl_cells cells = new_cells(1 + random_below(400));
        fragment(&cells, 1 + random_below(5));
        for (uint32_t b = 0; b < cells.n_blocks; b++)
            if (random_below(3) == 0) cells.claims[b] = 1 + random_below(4);
        while (cells.n_free > 0) {
            uint32_t before = cells.n_free;
            cl_request request = {1 + random_below(4), 0, CL_NO_CELL, 1 + random_below(before)};
            if (random_below(2)) request.tail = random_below(cells.n);
            cl_stretch *out = calloc(request.n, sizeof *out);
            assert_non_null(out);
            uint32_t n_out = cl_placement_choose(&cells, &request, out), total = 0;
            for (uint32_t i = 0; i < n_out; i++) {
                for (uint32_t c = out[i].cell; c < out[i].cell + out[i].len; c++)
                    assert_true(c < cells.n && cl_bitmap_get(cells.free_map, c));
                cl_cells_take(&cells, out[i].cell, out[i].len, 1);
                total += out[i].len;
            }
            free(out);
            assert_int_equal(total, request.n);
            assert_int_equal(cells.n_free, before - request.n);
        }
        cl_cells_destroy(&cells, &alloc);
    }
}

static void a_sequence_goes_on_behind_its_tail(void **state)
{
    (void)state;
    cl_cells cells = new_cells(256);
    cl_cells_take(&cells, 0, 40, 1);
    cl_stretch out[100];
    cl_request request = {1, 0, 39, 100};
    assert_int_equal(cl_placement_choose(&cells, &request, out), 1);
    assert_int_equal(out[0].cell, 40);
    assert_int_equal(out[0].len, 100);
    cl_cells_destroy(&cells, &alloc);
}

static void claimed_blocks_are_left_alone_until_nothing_else_is_free(void **state)
{
    (void)state;
    cl_cells cells = new_cells(96);
    cl_cells_take(&cells, 0, 1, 1);
    cells.claims[0] = 1;
    cl_stretch out[96];
    cl_request other = {2, 0, CL_NO_CELL, 64};
    assert_int_equal(cl_placement_choose(&cells, &other, out), 1);
    assert_int_equal(out[0].cell, 32);
    other.n = 65; /* one more than is unclaimed */
    uint32_t n = cl_placement_choose(&cells, &other, out), total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += out[i].len;
    assert_int_equal(total, 65);
    /* The owner itself goes on in its block. */
    cl_request owner = {1, 0, 0, 10};
    assert_int_equal(cl_placement_choose(&cells, &owner, out), 1);
    assert_int_equal(out[0].cell, 1);
    cl_cells_destroy(&cells, &alloc);
}

static void one_stretch_is_preferred_to_many(void **state)
{
    (void)state;
    cl_cells cells = new_cells(320);
    for (uint32_t i = 0; i < 160; i += 2)
        cl_cells_take(&cells, i, 1, 1);
    cl_stretch out[100];
    cl_request request = {1, 0, CL_NO_CELL, 100};
    assert_int_equal(cl_placement_choose(&cells, &request, out), 1);
    assert_int_equal(out[0].cell, 160);
    cl_cells_destroy(&cells, &alloc);
}

static void long_stretches_are_used_before_short_ones(void **state)
{
    (void)state;
    cl_cells cells = new_cells(320);
    /* Every second cell of the first half; in the second half stretches of 15 between single cells. */
    for (uint32_t i = 0; i < 160; i += 2)
        cl_cells_take(&cells, i, 1, 1);
    for (uint32_t i = 160; i < 320; i += 16)
        cl_cells_take(&cells, i, 1, 1);
    cl_stretch out[150];
    cl_request request = {1, 0, CL_NO_CELL, 150};
    assert_int_equal(cl_placement_choose(&cells, &request, out), 10);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(out[i].len, 15);
    cl_cells_destroy(&cells, &alloc);
}

/* The longest run of ones, bit by bit. */
static uint32_t longest_by_bits(const uint64_t *words, uint32_t n_words)
{
    uint32_t longest = 0, run = 0;
    for (uint32_t i = 0; i < 64 * n_words; i++) {
        run = words[i / 64] >> (i % 64) & 1 ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    return longest;
}

static void the_longest_run_is_found_across_words(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        uint64_t words[5];
        cl_bitmap_runs runs = {0, 0};
        memset(words, round % 2 ? 0 : 0xff, sizeof words);
        for (int i = 0; i < 6; i++) {
            uint32_t first = random_below(320), n = random_below(321 - first);
            if (random_below(2))
                cl_bitmap_set(words, first, n);
            else
                cl_bitmap_clear(words, first, n > 9 ? n % 9 : n);
        }
        for (int w = 0; w < 5; w++)
            cl_bitmap_add_word(&runs, words[w]);
        assert_int_equal(runs.longest, longest_by_bits(words, 5));
    }
}

/* The same cells are chosen with a bound that says nothing, with one that was just found, and with none. */
static void what_is_known_of_stretches_changes_no_choice(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        cl_cells cells = new_cells(1 + random_below(600));
        fragment(&cells, 1 + random_below(9));
        for (uint32_t b = 0; b < cells.n_blocks; b++)
            if (random_below(3) == 0) cells.claims[b] = 1 + random_below(4);
        if (cells.n_free > 0) {
            cl_request request = {1 + random_below(4), 0, CL_NO_CELL,
                                  1 + random_below(cells.n_free)};
            cl_stretch first[600], again[600];
            memset(first, 0, sizeof first);
            memset(again, 0, sizeof again);
            const cl_pool fresh = cells.pools[0];
            assert_int_equal(fresh.longest_free, UINT32_MAX);
            cells.pools[0].longest_free = cells.n;
            uint32_t n = cl_placement_choose(&cells, &request, first);
            cells.pools[0] = fresh;
            assert_int_equal(cl_placement_choose(&cells, &request, again), n);
            assert_memory_equal(first, again, sizeof first);
            assert_true(cells.pools[0].longest_free >= cl_cells_longest_free(&cells));
            memset(again, 0, sizeof again);
            assert_int_equal(cl_placement_choose(&cells, &request, again), n);
            assert_memory_equal(first, again, sizeof first);
        }
        cl_cells_destroy(&cells, &alloc);
    }
}

static void counts_of_holders_and_the_free_map_agree(void **state)
{
    (void)state;
    cl_cells cells = new_cells(100);
    cl_cells_take(&cells, 10, 20, 1);
    cl_cells_hold(&cells, 15, 5);
    assert_int_equal(cells.n_shared, 5);
    cl_cells_release(&cells, 10, 20);
    assert_int_equal(cells.n_shared, 0);
    assert_int_equal(cells.n_free, 95);
    assert_int_equal(cl_cells_longest_free(&cells), 80);
    cl_cells_release(&cells, 15, 5);
    assert_int_equal(cells.n_free, 100);
    assert_int_equal(pool.first_free, 0);
    assert_int_equal(cl_cells_longest_free(&cells), 100);
    cl_cells_destroy(&cells, &alloc);
    assert_int_equal(alloc.bytes[CELLAR_BYTES_CELLS], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bit_ranges_equal_single_bits),
        cmocka_unit_test(masks_are_empty_outside_their_range),
        cmocka_unit_test(n_free_cells_always_hold_n_tokens),
        cmocka_unit_test(a_sequence_goes_on_behind_its_tail),
        cmocka_unit_test(claimed_blocks_are_left_alone_until_nothing_else_is_free),
        cmocka_unit_test(one_stretch_is_preferred_to_many),
        cmocka_unit_test(long_stretches_are_used_before_short_ones),
        cmocka_unit_test(the_longest_run_is_found_across_words),
        cmocka_unit_test(what_is_known_of_stretches_changes_no_choice),
        cmocka_unit_test(counts_of_holders_and_the_free_map_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
