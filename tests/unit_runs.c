/*
 * unit_runs.c: a list of runs against a plain array of (position, cell, shift).
 *
 * Every list is also written out cell by cell; cutting and joining must never change what is written
 * out, erasing and appending must change just what they say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runs.h"

#define MAX_CELLS 256

typedef struct entry {
    int64_t pos;
    uint32_t cell;
    int32_t shift;
} entry;

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33) % n;
}

static uint32_t write_out(const cl_runs *runs, entry *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < runs->n; i++) {
        const cl_run *run = &runs->items[i];
        for (uint32_t k = 0; k < run->len; k++)
            out[n++] = (entry){run->pos + (int64_t)(run->step ? k : 0), run->cell + k, run->shift};
    }
    return n;
}

static void assert_maximal(const cl_runs *runs)
{
    for (uint32_t i = 1; i < runs->n; i++) {
        assert_false(cl_run_touches(&runs->items[i - 1], &runs->items[i]));
        assert_true(runs->items[i - 1].pos <= runs->items[i].pos);
    }
}

/* A random sorted list, appended cell by cell, with gaps, jumps, shifts and shared positions. */
static uint32_t fill(cl_runs *runs, cl_alloc *alloc, entry *truth)
{
    uint32_t n = 1 + random_below(60), cell = random_below(50);
    int32_t pos = (int32_t)random_below(5), shift = 0;
    assert_true(cl_runs_reserve(runs, alloc, MAX_CELLS));
    for (uint32_t i = 0; i < n; i++) {
        truth[i] = (entry){pos, cell, shift};
        cl_runs_append(runs,
                       (cl_run){.pos = pos, .cell = cell, .len = 1, .step = 1, .shift = shift});
        uint32_t kind = random_below(12);
        cell += kind == 0 ? 1 + random_below(9) : 1;
        pos += kind == 1 ? 0 : kind == 2 ? 1 + (int32_t)random_below(6) : 1;
        if (kind == 3) shift = (int32_t)random_below(3) - 1;
    }
    return n;
}

static cl_alloc new_alloc(void)
{
    cl_alloc alloc;
    cellar_allocator none = {NULL, NULL, NULL, NULL};
    cl_alloc_init(&alloc, &none, 0);
    return alloc;
}

static void appending_keeps_every_cell_and_joins_what_touches(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        cl_alloc alloc = new_alloc();
        cl_runs runs = {NULL, 0, 0};
        entry truth[MAX_CELLS], got[MAX_CELLS];
        uint32_t n = fill(&runs, &alloc, truth);
        assert_int_equal(write_out(&runs, got), n);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(got[i].pos, truth[i].pos);
            assert_int_equal(got[i].cell, truth[i].cell);
            assert_int_equal(got[i].shift, truth[i].shift);
        }
        assert_maximal(&runs);
        cl_runs_free(&runs, &alloc);
        assert_int_equal(alloc.bytes[CELLAR_BYTES_RUNS], 0);
    }
}

static void find_is_the_first_run_that_ends_at_or_after_a_position(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        cl_alloc alloc = new_alloc();
        cl_runs runs = {NULL, 0, 0};
        entry truth[MAX_CELLS];
        (void)fill(&runs, &alloc, truth);
        for (int64_t pos = -1; pos < 300; pos++) {
            uint32_t expected = 0;
            while (expected < runs.n && cl_run_last(&runs.items[expected]) < pos)
                expected++;
            assert_int_equal(cl_runs_find(&runs, pos), expected);
        }
        cl_runs_free(&runs, &alloc);
    }
}

static void a_cut_and_a_join_leave_the_list_as_it_was(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        cl_alloc alloc = new_alloc();
        cl_runs runs = {NULL, 0, 0};
        entry truth[MAX_CELLS], got[MAX_CELLS];
        uint32_t n = fill(&runs, &alloc, truth), n_runs = runs.n;
        cl_run *before = malloc(n_runs * sizeof *before);
        assert_non_null(before);
        memcpy(before, runs.items, n_runs * sizeof *before);
        int64_t pos = (int64_t)random_below(90) - 2;
        uint32_t at = cl_runs_cut(&runs, pos);
        assert_true(at == 0 || cl_run_last(&runs.items[at - 1]) < pos);
        assert_true(at == runs.n || runs.items[at].pos >= pos);
        assert_int_equal(write_out(&runs, got), n);
        cl_runs_join(&runs, at);
        assert_int_equal(runs.n, n_runs);
        assert_memory_equal(runs.items, before, n_runs * sizeof *before);
        free(before);
        cl_runs_free(&runs, &alloc);
    }
}

static void erasing_between_two_cuts_removes_just_that_range(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        cl_alloc alloc = new_alloc();
        cl_runs runs = {NULL, 0, 0};
        entry truth[MAX_CELLS], got[MAX_CELLS];
        uint32_t n = fill(&runs, &alloc, truth), kept = 0;
        int64_t p0 = random_below(80), p1 = p0 + random_below(40);
        uint32_t first = cl_runs_cut(&runs, p0), last = cl_runs_cut(&runs, p1);
        cl_runs_erase(&runs, first, last);
        cl_runs_mend(&runs, first);
        uint32_t n_got = write_out(&runs, got);
        for (uint32_t i = 0; i < n; i++) {
            if (truth[i].pos >= p0 && truth[i].pos < p1) continue;
            assert_int_equal(got[kept].pos, truth[i].pos);
            assert_int_equal(got[kept++].cell, truth[i].cell);
        }
        assert_int_equal(n_got, kept);
        assert_maximal(&runs);
        cl_runs_free(&runs, &alloc);
    }
}

static void lists_are_equal_when_their_cells_and_positions_are(void **state)
{
    /* Positions 4, 5, 5, 6 in cells 7 to 10, in two ways; a shorter one; one with other cells. */
    cl_run one[] = {{.pos = 4, .cell = 7, .len = 2, .step = 1},
                    {.pos = 5, .cell = 9, .len = 1, .step = 1},
                    {.pos = 6, .cell = 10, .len = 1, .step = 1}};
    cl_run two[] = {{.pos = 4, .cell = 7, .len = 1, .step = 1},
                    {.pos = 5, .cell = 8, .len = 2, .step = 0},
                    {.pos = 6, .cell = 10, .len = 1, .step = 1}};
    cl_run other[] = {{.pos = 4, .cell = 7, .len = 1, .step = 1},
                      {.pos = 5, .cell = 8, .len = 1, .step = 1},
                      {.pos = 6, .cell = 9, .len = 2, .step = 0}};
    cl_runs a = {one, 3, 3}, b = {two, 3, 3}, shorter = {two, 2, 2}, c = {other, 3, 3};
    cl_runs none = {NULL, 0, 0};
    (void)state;
    assert_true(cl_runs_equal(&a, &b));
    assert_true(cl_runs_equal(&b, &a));
    assert_true(cl_runs_equal(&none, &none));
    assert_false(cl_runs_equal(&a, &shorter));
    assert_false(cl_runs_equal(&shorter, &b));
    assert_false(cl_runs_equal(&a, &c));
    assert_false(cl_runs_equal(&c, &b));
    assert_false(cl_runs_equal(&none, &a));
}

static void clipping_is_what_lies_in_the_range(void **state)
{
    (void)state;
    cl_run run = {.pos = 10, .cell = 100, .len = 5, .step = 1, .shift = 3}, out;
    assert_false(cl_run_clip(&run, 0, 10, &out));
    assert_false(cl_run_clip(&run, 15, INT64_MAX, &out));
    assert_false(cl_run_clip(&run, 12, 12, &out)); /* nothing, though the run lies around it */
    assert_true(cl_run_clip(&run, 12, 14, &out));
    assert_int_equal(out.pos, 12);
    assert_int_equal(out.cell, 102);
    assert_int_equal(out.len, 2);
    assert_int_equal(out.shift, 3);
    cl_run shared = {.pos = 7, .cell = 3, .len = 4, .step = 0, .shift = 0};
    assert_true(cl_run_clip(&shared, 7, 8, &out));
    assert_int_equal(out.len, 4);
    assert_false(cl_run_clip(&shared, 8, 9, &out));
}

static void tokens_that_share_a_position_make_one_run(void **state)
{
    (void)state;
    cl_alloc alloc = new_alloc();
    cl_runs runs = {NULL, 0, 0};
    assert_true(cl_runs_reserve(&runs, &alloc, 8));
    for (uint32_t i = 0; i < 4; i++)
        cl_runs_append(&runs, (cl_run){.pos = 5, .cell = 20 + i, .len = 1, .step = 1, .shift = 0});
    cl_runs_append(&runs, (cl_run){.pos = 6, .cell = 24, .len = 1, .step = 1, .shift = 0});
    assert_int_equal(runs.n, 2);
    assert_int_equal(runs.items[0].step, 0);
    assert_int_equal(runs.items[0].len, 4);
    assert_int_equal(cl_run_last(&runs.items[0]), 5);
    cl_runs_free(&runs, &alloc);
}

static void nothing_is_erased_from_a_list_without_room(void **state)
{
    (void)state;
    cl_runs runs = {NULL, 0, 0}; /* memmove of nothing from NULL is not defined */
    cl_runs_erase(&runs, 0, 0);
    assert_int_equal(runs.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_erased_from_a_list_without_room),
        cmocka_unit_test(appending_keeps_every_cell_and_joins_what_touches),
        cmocka_unit_test(find_is_the_first_run_that_ends_at_or_after_a_position),
        cmocka_unit_test(a_cut_and_a_join_leave_the_list_as_it_was),
        cmocka_unit_test(erasing_between_two_cuts_removes_just_that_range),
        cmocka_unit_test(lists_are_equal_when_their_cells_and_positions_are),
        cmocka_unit_test(clipping_is_what_lies_in_the_range),
        cmocka_unit_test(tokens_that_share_a_position_make_one_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
