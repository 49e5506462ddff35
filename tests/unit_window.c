/*
 * unit_window.c: what windows let a query see, and what a sequence has lost.
 *
 * The predicate is compared with the sentences of cellar.h, position by position. `lost` stands for
 * some set of missing positions below it; here the set is written down, every operation is done to it
 * one position at a time, and the bound that window.c computes must hold for what comes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "model/random.h"
#include "window.h"

enum { POSITIONS = 160 };

static const cellar_window_kind kinds[] = {CELLAR_WINDOW_NONE, CELLAR_WINDOW_STANDARD,
                                           CELLAR_WINDOW_CHUNKED, CELLAR_WINDOW_SYMMETRIC};

/* The words of cellar.h. */
static bool sees(const cellar_window *w, int64_t k, int64_t q)
{
    int64_t size = w->size;
    if (w->kind == CELLAR_WINDOW_NONE || k < (int64_t)w->n_sinks) return true;
    if (w->kind == CELLAR_WINDOW_STANDARD) return k > q - size;
    if (w->kind == CELLAR_WINDOW_CHUNKED) return k >= q - q % size;
    return llabs((long long)(q - k)) <= size / 2;
}

typedef void visitor(const cellar_window *window);

static void visit_windows(visitor *visit)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 8, 32, 33, 64};
    static const uint32_t sinks[] = {0, 1, 4, 40};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t n = 0; n < sizeof sinks / sizeof *sinks; n++)
                visit(&(cellar_window){kinds[k], sizes[s], sinks[n]});
}

static void check_predicate(const cellar_window *w)
{
    for (int64_t q = 0; q < POSITIONS; q++)
        for (int64_t k = 0; k < POSITIONS; k++)
            assert_int_equal(cl_window_sees(w, k, q), sees(w, k, q));
}

static void windows_are_what_the_header_says(void **state)
{
    (void)state;
    visit_windows(check_predicate);
}

/* Nothing but sinks is seen below the first position, that position is, and it never falls. */
static void check_first(const cellar_window *w)
{
    for (int64_t q = 0; q + 1 < POSITIONS; q++) {
        int64_t first = cl_window_first(w, q);
        assert_true(first >= 0 && first <= q && sees(w, first, q));
        for (int64_t k = w->n_sinks; k < first; k++)
            assert_false(sees(w, k, q));
        assert_true(cl_window_first(w, q + 1) >= first);
    }
}

static void the_first_position_seen_never_falls(void **state)
{
    (void)state;
    visit_windows(check_first);
}

static void check_misses(const cellar_window *w)
{
    for (int64_t lost = 0; lost < 80; lost++) {
        for (int64_t q = 0; q < POSITIONS; q++) {
            /* Some position below `lost`, before its own, that q sees and that may be gone. */
            bool is_missing = false;
            for (int64_t k = w->n_sinks; k < lost; k++)
                is_missing = is_missing || (k < q && sees(w, k, q));
            /* A query before everything that is lost sees nothing of it; the answer may be stricter. */
            if (q >= lost)
                assert_int_equal(cl_window_misses(w, lost, q), is_missing);
            else
                assert_true(cl_window_misses(w, lost, q) || !is_missing);
        }
        int64_t answer = cl_window_rewind_min(w, lost);
        if (w->kind == CELLAR_WINDOW_NONE) continue; /* such a group loses nothing */
        for (int64_t q = answer; q < POSITIONS; q++)
            assert_false(cl_window_misses(w, lost, q));
        bool is_alone = answer > 0 && cl_window_first(w, answer - 1) == answer - 1;
        if (answer > 0 && !is_alone) assert_true(cl_window_misses(w, lost, answer - 1));
    }
}

static void rewind_min_is_where_nothing_is_missed_any_more(void **state)
{
    (void)state;
    visit_windows(check_misses);
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    for (size_t k = 1; k < sizeof kinds / sizeof *kinds; k++) {
        cellar_window w = {kinds[k], 1u << 30, UINT32_MAX};
        int64_t q = INT32_MAX;
        assert_true(cl_window_first(&w, q) >= 0 && cl_window_first(&w, q) <= q);
        assert_true(cl_window_last(&w, q) >= q);
        assert_false(cl_window_misses(&w, INT32_MAX, q));
        assert_int_equal(cl_window_rewind_min(&w, INT32_MAX), 0);
        w.n_sinks = 0;
        assert_true(cl_window_rewind_min(&w, INT32_MAX) >= INT32_MAX);
    }
}

/* ---- lost ------------------------------------------------------------------------------------- */

typedef struct missing {
    bool at[POSITIONS]; /* missing positions */
    int64_t lost;
} missing;

static missing make_missing(uint64_t *seed)
{
    missing m = {.lost = random_below(seed, POSITIONS / 2)};
    for (int64_t p = 0; p < m.lost; p++)
        m.at[p] = random_below(seed, 3) == 0;
    return m;
}

static void check_bound(const bool *at, int64_t bound)
{
    assert_true(bound >= 0);
    for (int64_t p = bound; p < POSITIONS; p++)
        assert_false(at[p]);
}

typedef struct span {
    int64_t p0, p1;
} span;

static span make_span(uint64_t *seed)
{
    int64_t a = random_below(seed, POSITIONS / 2), b = random_below(seed, POSITIONS / 2);
    return a < b ? (span){a, b} : (span){b, a};
}

static void removing_what_is_lost_makes_it_forgotten(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (uint32_t round = 0; round < 20000; round++) {
        missing m = make_missing(&seed);
        span s = make_span(&seed);
        int64_t bound = cl_window_lost_remove(m.lost, s.p0, s.p1);
        assert_true(bound <= m.lost);
        for (int64_t p = s.p0; p < s.p1; p++)
            m.at[p] = false;
        check_bound(m.at, bound);
    }
    assert_int_equal(cl_window_lost_remove(50, 0, INT64_MAX), 0);
    assert_int_equal(cl_window_lost_remove(50, 20, 50), 20);
    assert_int_equal(cl_window_lost_remove(50, 60, 70), 50);
    assert_int_equal(cl_window_lost_remove(50, 20, 49), 50);
}

static void what_is_lost_moves_with_its_range(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (uint32_t round = 0; round < 20000; round++) {
        missing m = make_missing(&seed), after = {.lost = 0};
        span s = make_span(&seed);
        int64_t delta = (int64_t)random_below(&seed, POSITIONS / 2) -
                        (int64_t)random_below(&seed, 40);
        int64_t bound = cl_window_lost_shift(m.lost, s.p0, s.p1, delta);
        for (int64_t p = 0; p < POSITIONS; p++) {
            int64_t to = p >= s.p0 && p < s.p1 ? p + delta : p;
            if (m.at[p] && to >= 0 && to < POSITIONS) after.at[to] = true;
        }
        check_bound(after.at, bound);
    }
    assert_int_equal(cl_window_lost_shift(10, 10, INT64_MAX, -5), 10);
    assert_int_equal(cl_window_lost_shift(10, 0, INT64_MAX, -5), 5);
    assert_int_equal(cl_window_lost_shift(10, 0, INT64_MAX, -20), 0);
}

static void what_is_lost_is_divided_with_its_range(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (uint32_t round = 0; round < 20000; round++) {
        missing m = make_missing(&seed), after = {.lost = 0};
        span s = make_span(&seed);
        int64_t divisor = 1 + random_below(&seed, 9);
        int64_t bound = cl_window_lost_divide(m.lost, s.p0, s.p1, divisor);
        for (int64_t p = 0; p < POSITIONS; p++)
            if (m.at[p]) after.at[p >= s.p0 && p < s.p1 ? p / divisor : p] = true;
        check_bound(after.at, bound);
    }
    assert_int_equal(cl_window_lost_divide(16, 0, INT64_MAX, 8), 2);
    assert_int_equal(cl_window_lost_divide(17, 0, INT64_MAX, 8), 3);
}

static void a_copy_takes_over_what_is_lost_in_its_range(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (uint32_t round = 0; round < 20000; round++) {
        missing to = make_missing(&seed), from = make_missing(&seed);
        span s = make_span(&seed);
        int64_t bound = cl_window_lost_copy(to.lost, from.lost, s.p0, s.p1);
        for (int64_t p = s.p0; p < s.p1; p++)
            to.at[p] = from.at[p];
        check_bound(to.at, bound);
    }
    assert_int_equal(cl_window_lost_copy(0, 30, 0, INT64_MAX), 30);
    assert_int_equal(cl_window_lost_copy(30, 0, 0, INT64_MAX), 0);
    assert_int_equal(cl_window_lost_copy(0, 30, 30, INT64_MAX), 0);
    assert_int_equal(cl_window_lost_copy(0, 30, 0, 10), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_what_the_header_says),
        cmocka_unit_test(the_first_position_seen_never_falls),
        cmocka_unit_test(rewind_min_is_where_nothing_is_missed_any_more),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
        cmocka_unit_test(removing_what_is_lost_makes_it_forgotten),
        cmocka_unit_test(what_is_lost_moves_with_its_range),
        cmocka_unit_test(what_is_lost_is_divided_with_its_range),
        cmocka_unit_test(a_copy_takes_over_what_is_lost_in_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
