/*
 * unit_window.c: what windows let a query see, and what a sequence has lost.
 *
 * The predicate is compared with the sentences of cellar.h, position by position. What is lost is a set of
 * positions; here it is also written down as an array, every operation is done to that one position at a
 * time, and the list that lost.c makes must say the same, in the one way in which it may be written.
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

/* ---- lost ------------------------------------------------------------------------------------- */

/* A set of positions, as an array and as a list. */
typedef struct lost_set {
    bool at[2 * POSITIONS];
    cl_run items[4 * POSITIONS];
    cl_runs list;
} lost_set;

static lost_set *make_set(uint64_t *seed)
{
    lost_set *set = calloc(1, sizeof *set);
    set->list = (cl_runs){set->items, 0, 4 * POSITIONS};
    uint32_t density = 1 + random_below(seed, 12);
    for (uint32_t p = random_below(seed, 20); p < POSITIONS / 2; p += 1 + random_below(seed, 3))
        for (uint32_t k = random_below(seed, density); k-- > 0 && p < POSITIONS / 2; p++)
            set->at[p] = true;
    for (uint32_t p = 0; p < POSITIONS; p++)
        if (set->at[p]) cl_lost_add(&set->list, p, p + 1);
    return set;
}

/* The list says what the array says, each stretch as one run. */
static void check_set(const lost_set *set)
{
    uint32_t n = 0;
    for (int64_t p = 0; p < 2 * POSITIONS; p++) {
        assert_int_equal(cl_lost_any(&set->list, p, p + 1), set->at[p]);
        if (!set->at[p] || (p > 0 && set->at[p - 1])) continue;
        const cl_run *run = &set->list.items[n++];
        assert_true(n <= set->list.n && run->pos == p && run->cell == (uint32_t)p);
        assert_true(run->step == 1 && run->shift == 0);
    }
    assert_int_equal(n, set->list.n);
}

typedef struct span {
    int64_t p0, p1;
} span;

static span make_span(uint64_t *seed)
{
    int64_t a = random_below(seed, POSITIONS / 2), b = random_below(seed, POSITIONS / 2);
    if (random_below(seed, 8) == 0) return (span){a, INT64_MAX};
    return a < b ? (span){a, b} : (span){b, a};
}

static bool is_in(span s, int64_t p)
{
    return p >= s.p0 && p < s.p1;
}

enum { ROUNDS = 4000 };

static void what_is_added_or_removed_is_lost_or_not(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        lost_set *set = make_set(&seed);
        check_set(set);
        span s = make_span(&seed);
        bool is_added = random_below(&seed, 2) && s.p1 < INT64_MAX;
        for (int64_t p = 0; p < POSITIONS; p++)
            if (is_in(s, p)) set->at[p] = is_added;
        if (is_added)
            cl_lost_add(&set->list, s.p0, s.p1);
        else
            cl_lost_remove(&set->list, s.p0, s.p1);
        check_set(set);
        free(set);
    }
}

/* Each position of a range goes where `to` says. */
static void move_array(lost_set *set, span s, int64_t delta, int64_t divisor)
{
    bool after[2 * POSITIONS] = {false};
    for (int64_t p = 0; p < POSITIONS; p++) {
        int64_t to = !is_in(s, p) ? p : divisor ? p / divisor : p + delta;
        if (set->at[p] && to >= 0) after[to] = true;
    }
    memcpy(set->at, after, sizeof after);
}

static void what_is_lost_moves_with_its_range(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        lost_set *set = make_set(&seed);
        span s = make_span(&seed);
        int64_t delta = (int64_t)random_below(&seed, POSITIONS) - POSITIONS / 2;
        move_array(set, s, delta, 0);
        /* What would come to stand below 0 is forgotten before. */
        span kept = {s.p0 + delta < 0 ? -delta : s.p0, s.p1};
        cl_lost_remove(&set->list, s.p0, kept.p0 < s.p1 ? kept.p0 : s.p1);
        cl_lost_shift(&set->list, kept.p0, kept.p1, delta);
        check_set(set);
        free(set);
    }
}

static void what_is_lost_is_divided_with_its_range(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        lost_set *set = make_set(&seed);
        span s = make_span(&seed);
        int64_t divisor = 1 + random_below(&seed, 9);
        move_array(set, s, 0, divisor);
        cl_lost_divide(&set->list, s.p0, s.p1, divisor);
        check_set(set);
        free(set);
    }
}

static void a_copy_takes_over_what_is_lost_in_its_range(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        lost_set *to = make_set(&seed), *from = make_set(&seed);
        span s = make_span(&seed);
        for (int64_t p = 0; p < POSITIONS; p++)
            if (is_in(s, p)) to->at[p] = from->at[p];
        cl_lost_copy(&to->list, &from->list, s.p0, s.p1);
        check_set(to);
        free(to);
        free(from);
    }
}

/* ---- what a query misses ---------------------------------------------------------------------- */

/* The words of cellar.h: something before q that is lost and that q sees. */
static bool is_missed(const cellar_window *w, const lost_set *set, int64_t q)
{
    for (int64_t k = 0; k < q && k < POSITIONS; k++)
        if (set->at[k] && sees(w, k, q)) return true;
    return false;
}

static void check_misses(const cellar_window *w)
{
    uint64_t seed = 5;
    for (uint32_t round = 0; round < 40 && w->kind != CELLAR_WINDOW_NONE; round++) {
        lost_set *set = make_set(&seed);
        for (int64_t q = 0; q < POSITIONS; q++) {
            assert_int_equal(cl_window_misses(w, &set->list, q), is_missed(w, set, q));
            int64_t back = q, next; /* to the largest place where nothing is missed */
            while ((next = cl_window_go_back(w, &set->list, back)) != back)
                back = next;
            assert_false(is_missed(w, set, back));
            while (++back <= q)
                assert_true(is_missed(w, set, back));
        }
        free(set);
    }
}

static void a_query_misses_what_is_lost_and_seen(void **state)
{
    (void)state;
    visit_windows(check_misses);
}

static void check_horizon(const cellar_window *w)
{
    for (int64_t k = 0; k < POSITIONS; k++) {
        int64_t horizon = cl_window_horizon(w, k);
        assert_true(horizon >= k && sees(w, k, horizon < POSITIONS ? horizon : POSITIONS));
        assert_true(horizon == INT64_MAX || !sees(w, k, horizon + 1));
    }
}

static void a_key_is_seen_up_to_its_horizon(void **state)
{
    (void)state;
    visit_windows(check_horizon);
}

static void the_largest_numbers_do_not_overflow(void **state)
{
    (void)state;
    cl_run room[8];
    for (size_t k = 1; k < sizeof kinds / sizeof *kinds; k++) {
        cellar_window w = {kinds[k], 1u << 30, UINT32_MAX};
        cl_runs lost = {room, 0, 8};
        int64_t q = INT32_MAX;
        cl_lost_add(&lost, 0, INT32_MAX);
        assert_int_equal(cl_lost_end(&lost), INT32_MAX);
        assert_true(cl_window_first(&w, q) >= 0 && cl_window_first(&w, q) <= q);
        assert_true(cl_window_last(&w, q) >= q);
        assert_true(cl_window_misses(&w, &lost, q));
        assert_true(cl_window_horizon(&w, 7) == INT64_MAX);
        w.n_sinks = 0;
        assert_true(cl_window_horizon(&w, INT32_MAX - 1) >= INT32_MAX - 1);
        assert_int_equal(cl_window_go_back(&w, &lost, 0), 0);
        cl_lost_shift(&lost, 5, INT64_MAX, -5);
        assert_int_equal(cl_lost_end(&lost), INT32_MAX - 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_what_the_header_says),
        cmocka_unit_test(the_first_position_seen_never_falls),
        cmocka_unit_test(what_is_added_or_removed_is_lost_or_not),
        cmocka_unit_test(what_is_lost_moves_with_its_range),
        cmocka_unit_test(what_is_lost_is_divided_with_its_range),
        cmocka_unit_test(a_copy_takes_over_what_is_lost_in_its_range),
        cmocka_unit_test(a_query_misses_what_is_lost_and_seen),
        cmocka_unit_test(a_key_is_seen_up_to_its_horizon),
        cmocka_unit_test(the_largest_numbers_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
