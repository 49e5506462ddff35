/*
 * unit_compaction.c: compaction makes runs longer and cells lie lower, and comes to an end.
 *
 * On the hand-made groups of support_world.h: after every call what everybody holds is the same, token by
 * token, and a memory at which compaction stops has nothing left that could be joined or moved down. The
 * measure that must fall with every move is the one that lib/compaction.c argues with.
 */
#include "support_world.h"

/* ---- compaction ------------------------------------------------------------------------------ */

/* Do two runs of a list follow each other, rotated alike? */
static bool goes_on(const cl_run *a, const cl_run *b)
{
    int32_t distance = b->pos - cl_run_last(a);
    return a->shift == b->shift && (distance == 0 || distance == 1);
}

/* Does some list hold a cell and the one behind it, one after the other? */
static bool is_joined(world *w, uint32_t cell)
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
static uint32_t find_places(world *w, uint32_t (*seen)[2])
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

static uint32_t count_places(world *w)
{
    static uint32_t seen[MAX_PLACES][2];
    return find_places(w, seen);
}

/* Where only one list of cells comes to a place and only one leaves it, no room may be left unused. */
static void assert_nothing_fits(world *w)
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
        while (end + room + 1 < cells_of(w)->n &&
               cl_bitmap_get(cells_of(w)->free_map, end + room + 1) &&
               cells_of(w)->pool_of[(end + room + 1) / CL_BLOCK] ==
                   cells_of(w)->pool_of[end / CL_BLOCK])
            room++;
        assert_true(room < len);
    }
}

static uint32_t largest_held(world *w, uint32_t pool)
{
    cl_cells *cells = cells_of(w);
    uint32_t largest = 0;
    for (uint32_t c = 0; c < cells->n; c++)
        if (cells->refs[c] > 0 && cells->pool_of[c / CL_BLOCK] == pool) largest = c;
    return largest;
}

static void compact_to_the_end(world *w, uint32_t budget)
{
    uint32_t n = write_out(w, before), n_calls = 0, n_moved = 1;
    uint32_t n_held = cells_of(w)->n - cells_of(w)->n_free;
    while (n_moved > 0) {
        assert_int_equal(cellar_compact(&w->memory, budget, &n_moved, NULL), CELLAR_OK);
        assert_true(n_moved <= budget);
        assert_same(w, n);
        assert_true(++n_calls < 40 * (n_held + 10));
    }
    assert_int_equal(cellar_compact(&w->memory, budget, NULL, NULL), CELLAR_OK);
    assert_same(w, n);
}

static void compaction_comes_to_an_end_and_keeps_everything(void **state)
{
    (void)state;
    static world w;
    const uint32_t budgets[] = {1, 2, 3, 7, 31, 64, 100000};
    uint32_t sum_before = 0, sum_after = 0;
    for (uint64_t seed = 0; seed < 140; seed++) {
        open_world(&w, seed, 90, 150);
        uint32_t budget = budgets[seed % 7];
        for (int phase = 0; phase < 3; phase++) {
            for (int round = 0; round < 40; round++)
                change(&w);
            uint32_t at_first = count_places(&w);
            compact_to_the_end(&w, budget);
            sum_before += at_first;
            sum_after += count_places(&w);
            if (budget > 30) assert_nothing_fits(&w);
        }
        close_world(&w);
    }
    print_message("places where lists break: %u before, %u after\n", sum_before, sum_after);
    assert_true(sum_before > 1000 && sum_after < sum_before / 2);
}

static void budgets_may_change_from_call_to_call(void **state)
{
    (void)state;
    static world w;
    for (uint64_t seed = 0; seed < 60; seed++) {
        open_world(&w, seed + 1000, 90, 150);
        for (int round = 0; round < 60; round++)
            change(&w);
        uint32_t n = write_out(&w, before), n_moved;
        for (int call = 0; call < 40; call++) {
            uint32_t budget = random_below(&w.random, 9);
            assert_int_equal(cellar_compact(&w.memory, budget, &n_moved, NULL), CELLAR_OK);
            assert_true(n_moved <= budget);
            assert_same(&w, n);
            if (random_one_in(&w.random, 4)) change(&w);
            n = write_out(&w, before);
        }
        compact_to_the_end(&w, 5);
        close_world(&w);
    }
}

/* Sequence 0 lies in pieces of 3, sequence 2 between them. */
static void interleave(world *w)
{
    for (int i = 0; i < 6; i++) {
        for (cellar_seq seq = 0; seq <= 2; seq += 2) {
            uint32_t slot;
            assert_int_equal(cl_sequences_add(&w->group.sequences, seq, &slot, NULL), CELLAR_OK);
            assert_int_equal(cl_sequences_reserve(&w->group.sequences, slot, 3, NULL), CELLAR_OK);
            cl_runs *runs = &w->group.sequences.table.items[slot].runs;
            for (int k = 0; k < 3; k++) {
                uint32_t cell = (uint32_t)(i * 6 + seq / 2 * 3 + k);
                cl_cells_take(cells_of(w), cell, 1, 1);
                cells_of(w)->stored_pos[cell] = 3 * i + k;
                cells_of(w)->token[cell] = w->next_token;
                cells_of(w)->points[cell].y = (int16_t)(w->next_token % 100);
                write_row(w, cell, w->next_token++);
                cl_runs_append(runs, (cl_run){.pos = 3 * i + k, .cell = cell, .len = 1, .step = 1});
            }
        }
    }
}

static void interleaved_sequences_become_one_run_each_at_the_bottom(void **state)
{
    (void)state;
    static world w;
    for (uint32_t budget = 1; budget < 40; budget++) {
        open_world(&w, 1, 64, 32);
        interleave(&w);
        assert_int_equal(count_places(&w), 10);
        compact_to_the_end(&w, budget);
        assert_int_equal(cl_group_runs(&w.group, 0)->n, 1);
        assert_int_equal(cl_group_runs(&w.group, 2)->n, 1);
        assert_int_equal(count_places(&w), 0);
        assert_true(cl_compaction_fragmentation(&w.memory) == 0);
        assert_true(largest_held(&w, 0) < 36 + 18);
        close_world(&w);
    }
}

static void a_shared_prefix_stays_shared_and_whole(void **state)
{
    (void)state;
    static world w;
    open_world(&w, 1, 96, 32);
    interleave(&w);
    cl_range all = {0, INT64_MAX};
    assert_int_equal(cl_sequences_prepare_copy(&w.group.sequences, 0, 4, all, NULL), CELLAR_OK);
    cl_sequences_copy(&w.group.sequences, 0, 4, all);
    append(&w, 4, 5);
    append(&w, 0, 5);
    pin(&w, 1, 0);
    uint32_t n_shared = cells_of(&w)->n_shared;
    compact_to_the_end(&w, 4);
    assert_int_equal(cells_of(&w)->n_shared, n_shared);
    uint32_t n_runs = cl_group_runs(&w.group, 0)->n + cl_group_runs(&w.group, 4)->n;
    assert_true(n_runs <= 3); /* one of them goes on elsewhere */
    assert_int_equal(cl_group_runs(&w.group, 0)->items[0].cell,
                     cl_group_runs(&w.group, 4)->items[0].cell);
    close_world(&w);
}

static void compaction_without_memory_moves_nothing_half(void **state)
{
    (void)state;
    static world w;
    for (int fail = 0; fail < 12; fail++) {
        open_world(&w, 3, 90, 150);
        for (int round = 0; round < 90; round++)
            change(&w);
        uint32_t n = write_out(&w, before), n_moved;
        allocations_left = fail;
        cellar_error error = {0};
        cellar_status status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        allocations_left = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        if (fail == 0) assert_int_equal(status, CELLAR_NO_MEMORY);
        assert_same(&w, n);
        w.n_until_failure = fail;
        status = cellar_compact(&w.memory, 1000, &n_moved, &error);
        w.n_until_failure = -1;
        assert_true(status == CELLAR_OK || status == CELLAR_IO);
        assert_same(&w, n);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compaction_comes_to_an_end_and_keeps_everything),
        cmocka_unit_test(budgets_may_change_from_call_to_call),
        cmocka_unit_test(interleaved_sequences_become_one_run_each_at_the_bottom),
        cmocka_unit_test(a_shared_prefix_stays_shared_and_whole),
        cmocka_unit_test(compaction_without_memory_moves_nothing_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
