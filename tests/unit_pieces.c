/*
 * unit_pieces.c: compaction brings together what belongs together, and comes to an end.
 *
 * Random groups (support_pieces.h) and some drawn by hand are compacted to the end under all sorts of
 * budgets. Nothing but the numbers of cells may change, no room that a piece could use may be left, and
 * calls must end. Whole memories are tried in unit_compaction.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bitmap.h"
#include "compaction.h"
#include "support_faulty.h"
#include "support_pieces.h"

/* Do two runs of a list follow each other, rotated alike? */
static bool goes_on(const cl_run *a, const cl_run *b)
{
    int32_t distance = b->pos - cl_run_last(a);
    return a->shift == b->shift && (distance == 0 || distance == 1);
}

/* Does some list hold a cell and the one behind it, one after the other? */
static bool is_joined(pieces *w, uint32_t cell)
{
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 0; runs && i < runs->n; i++) {
            const cl_run *run = &runs->items[i];
            uint32_t end = run->cell + run->len - 1;
            if (cell >= run->cell && cell < end) return true;
            if (cell == end && i + 1 < runs->n && goes_on(run, run + 1) && run[1].cell == end + 1)
                return true;
        }
    }
    return false;
}

#define MAX_PLACES 512

/* Different places (end, beginning) where some list goes on elsewhere, and none goes on in place. */
static uint32_t find_places(pieces *w, uint32_t (*seen)[2])
{
    uint32_t n = 0;
    for (uint32_t list = 0; list < cl_relocate_count_lists(&w->group); list++) {
        const cl_runs *runs = cl_relocate_list(&w->group, list);
        for (uint32_t i = 1; runs && i < runs->n; i++) {
            const cl_run *a = &runs->items[i - 1], *b = &runs->items[i];
            uint32_t end = a->cell + a->len - 1, k = 0;
            if (!goes_on(a, b) || is_joined(w, end)) continue;
            while (k < n && (seen[k][0] != end || seen[k][1] != b->cell))
                k++;
            assert_true(n < MAX_PLACES);
            seen[n][0] = end;
            seen[n][1] = b->cell;
            n += k == n;
        }
    }
    return n;
}

static uint32_t count_places(pieces *w)
{
    static uint32_t seen[MAX_PLACES][2];
    return find_places(w, seen);
}

/* Where only one list of cells comes to a place and only one leaves it, no room may be left unused. */
static void assert_nothing_fits(pieces *w)
{
    static uint32_t seen[MAX_PLACES][2];
    uint32_t n = find_places(w, seen);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = seen[i][0], begin = seen[i][1], len = 1, room = 0, n_same = 0;
        for (uint32_t k = 0; k < n; k++)
            n_same += seen[k][0] == end || seen[k][1] == begin;
        if (n_same > 1 || (begin > 0 && is_joined(w, begin - 1))) continue;
        while (is_joined(w, begin + len - 1))
            len++;
        while (end + room + 1 < pieces_cells(w)->n &&
               cl_bitmap_get(pieces_cells(w)->free_map, end + room + 1) &&
               pieces_cells(w)->pool_of[(end + room + 1) / CL_BLOCK] ==
                   pieces_cells(w)->pool_of[end / CL_BLOCK])
            room++;
        assert_true(room < len);
    }
}

static uint32_t largest_held(pieces *w, uint32_t pool)
{
    cl_cells *cells = pieces_cells(w);
    uint32_t largest = 0;
    for (uint32_t c = 0; c < cells->n; c++)
        if (cells->refs[c] > 0 && cells->pool_of[c / CL_BLOCK] == pool) largest = c;
    return largest;
}

/* Returns how many cells moved. */
static uint32_t compact_to_the_end(pieces *w, uint32_t budget)
{
    pieces_note(w);
    uint32_t n_calls = 0, n_moved = 1, total = 0;
    uint32_t n_held = pieces_cells(w)->n - pieces_cells(w)->n_free;
    while (n_moved > 0) {
        assert_int_equal(cellar_compact(&w->memory, budget, &n_moved, NULL), CELLAR_OK);
        assert_true(n_moved <= budget);
        total += n_moved;
        pieces_assert_same(w);
        assert_true(++n_calls < 40 * (n_held + 10));
    }
    assert_int_equal(cellar_compact(&w->memory, budget, NULL, NULL), CELLAR_OK);
    pieces_assert_same(w);
    return total;
}

static void compaction_comes_to_an_end_and_keeps_everything(void **state)
{
    (void)state;
    static pieces w;
    const uint32_t budgets[] = {1, 2, 3, 7, 31, 64, 100000};
    uint32_t sum_before = 0, sum_after = 0;
    for (uint64_t seed = 0; seed < 140; seed++) {
        pieces_open(&w, seed, 90, 150);
        uint32_t budget = budgets[seed % 7];
        for (int phase = 0; phase < 3; phase++) {
            for (int round = 0; round < 40; round++)
                pieces_change(&w);
            uint32_t at_first = count_places(&w);
            (void)compact_to_the_end(&w, budget);
            sum_before += at_first;
            sum_after += count_places(&w);
            if (budget > 30) assert_nothing_fits(&w);
        }
        pieces_close(&w);
    }
    print_message("places where lists break: %u before, %u after\n", sum_before, sum_after);
    assert_true(sum_before > 1000 && sum_after < sum_before / 2);
}

static void budgets_may_change_from_call_to_call(void **state)
{
    (void)state;
    static pieces w;
    for (uint64_t seed = 0; seed < 60; seed++) {
        pieces_open(&w, seed + 1000, 90, 150);
        for (int round = 0; round < 60; round++)
            pieces_change(&w);
        pieces_note(&w);
        uint32_t n_moved;
        for (int call = 0; call < 40; call++) {
            uint32_t budget = random_below(&w.random, 9);
            assert_int_equal(cellar_compact(&w.memory, budget, &n_moved, NULL), CELLAR_OK);
            assert_true(n_moved <= budget);
            pieces_assert_same(&w);
            if (random_one_in(&w.random, 4)) pieces_change(&w);
            pieces_note(&w);
        }
        (void)compact_to_the_end(&w, 5);
        pieces_close(&w);
    }
}

/* Sequence 0 lies in pieces of 3, sequence 2 between them. */
static void interleave(pieces *w)
{
    for (uint32_t i = 0; i < 6; i++) {
        pieces_put(w, 0, 6 * i, 3);
        pieces_put(w, 2, 6 * i + 3, 3);
    }
}

static void interleaved_sequences_become_one_run_each_at_the_bottom(void **state)
{
    (void)state;
    static pieces w;
    for (uint32_t budget = 1; budget < 40; budget++) {
        pieces_open(&w, 1, 64, 32);
        interleave(&w);
        assert_int_equal(count_places(&w), 10);
        (void)compact_to_the_end(&w, budget);
        assert_int_equal(cl_group_runs(&w.group, 0)->n, 1);
        assert_int_equal(cl_group_runs(&w.group, 2)->n, 1);
        assert_int_equal(count_places(&w), 0);
        assert_true(cl_compaction_fragmentation(&w.memory) == 0);
        assert_true(largest_held(&w, 0) < 36 + 18);
        pieces_close(&w);
    }
}

static void a_shared_prefix_stays_shared_and_whole(void **state)
{
    (void)state;
    static pieces w;
    pieces_open(&w, 1, 96, 32);
    interleave(&w);
    pieces_share(&w, 0, 4, INT64_MAX);
    pieces_append(&w, 4, 5);
    pieces_append(&w, 0, 5);
    pieces_pin(&w, 1, 0);
    uint32_t n_shared = pieces_cells(&w)->n_shared;
    (void)compact_to_the_end(&w, 4);
    assert_int_equal(pieces_cells(&w)->n_shared, n_shared);
    uint32_t n_runs = cl_group_runs(&w.group, 0)->n + cl_group_runs(&w.group, 4)->n;
    assert_true(n_runs <= 3); /* one of them goes on elsewhere */
    assert_int_equal(cl_group_runs(&w.group, 0)->items[0].cell,
                     cl_group_runs(&w.group, 4)->items[0].cell);
    pieces_close(&w);
}

/*
 * Pieces of 20, 8 and 8; 2 cells are free behind the first, and 17 in one stretch: room for the last two.
 * Those come together there. That the first 2 to arrive would also fit behind the 20 must not lead them
 * astray.
 */
static void what_a_small_budget_begins_is_finished(void **state)
{
    (void)state;
    static pieces w;
    for (uint32_t budget = 1; budget <= 16; budget++) {
        pieces_open(&w, 1, 96, 32);
        pieces_put(&w, 0, 0, 20);
        pieces_put(&w, 2, 22, 18);
        pieces_put(&w, 0, 40, 8);
        pieces_put(&w, 2, 48, 18);
        pieces_put(&w, 0, 66, 8);
        pieces_put(&w, 4, 74, 5);
        assert_int_equal(pieces_cells(&w)->pools[0].n_free, 96 - 77);
        assert_int_equal(compact_to_the_end(&w, budget), 16 + 5); /* the last five sink */
        assert_int_equal(cl_group_runs(&w.group, 0)->n, 2);
        assert_int_equal(cl_group_runs(&w.group, 0)->items[1].cell, 79);
        pieces_close(&w);
    }
}

/*
 * Sequence 0 leaves in the middle of a piece to which sequence 2 keeps. The piece sinks; cutting it just
 * where they part would make the two leave it each its way.
 */
static void a_piece_is_not_cut_where_sequences_part(void **state)
{
    (void)state;
    static pieces w;
    for (uint32_t budget = 2; budget <= 9; budget++) {
        pieces_open(&w, 1, 64, 32);
        pieces_put(&w, 0, 20, 4);
        pieces_share(&w, 0, 2, 4);
        pieces_put(&w, 0, 30, 12);
        pieces_put(&w, 2, 24, 4);
        pieces_put(&w, 4, 8, 12);
        (void)compact_to_the_end(&w, budget);
        assert_int_equal(cl_group_runs(&w.group, 2)->n, 1);
        assert_int_equal(cl_group_runs(&w.group, 2)->items[0].cell, 0);
        assert_int_equal(cl_group_runs(&w.group, 0)->n, 2);
        pieces_close(&w);
    }
}

static void compaction_without_memory_moves_nothing_half(void **state)
{
    (void)state;
    static pieces w;
    for (int fail = 0; fail < 12; fail++) {
        pieces_open(&w, 3, 90, 150);
        for (int round = 0; round < 90; round++)
            pieces_change(&w);
        pieces_note(&w);
        uint32_t n_moved;
        faulty_allocations_left = fail;
        cellar_error error = {0};
        cellar_status status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        faulty_allocations_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        if (fail == 0) assert_int_equal(status, CELLAR_NO_MEMORY);
        pieces_assert_same(&w);
        faulty_store_calls_left = fail;
        status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        faulty_store_calls_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_IO);
        pieces_assert_same(&w);
        pieces_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compaction_comes_to_an_end_and_keeps_everything),
        cmocka_unit_test(budgets_may_change_from_call_to_call),
        cmocka_unit_test(interleaved_sequences_become_one_run_each_at_the_bottom),
        cmocka_unit_test(a_shared_prefix_stays_shared_and_whole),
        cmocka_unit_test(what_a_small_budget_begins_is_finished),
        cmocka_unit_test(a_piece_is_not_cut_where_sequences_part),
        cmocka_unit_test(compaction_without_memory_moves_nothing_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
