/*
 * unit_sampler.c: the sampler against a naive one that sorts the whole vocabulary, and against
 * exact probabilities.
 *
 * Which tokens survive the filters is seen by drawing very often at a temperature so high that all
 * survivors are equally likely. Every seed is fixed, so a result is the same each time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/random_source.h"
#include "engine/sampler.h"

#define MOST_TOKENS 64
#define SURVIVORS_ONLY 1e12 /* a temperature at which every survivor has the same chance */

static sampler *create(sampler_options options, uint32_t n_vocab)
{
    sampler *s;
    cellar_error error;
    if (sampler_create(&options, n_vocab, &s, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return s;
}

/* No filter, no penalty, temperature 1. */
static sampler_options plain(uint64_t seed)
{
    return (sampler_options){
        .temperature = 1.0, .top_p = 1.0, .repeat_penalty = 1.0, .repeat_last = 64, .seed = seed};
}

static cellar_token next_of(sampler_options options, const float *logits, uint32_t n)
{
    sampler *s = create(options, n);
    cellar_token token = sampler_next(s, logits);
    sampler_destroy(s);
    return token;
}

/* ---- the naive reference -------------------------------------------------------------------- */

typedef struct entry {
    double logit, p;
    uint32_t id;
} entry;

static int compare_entries(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->logit != b->logit) {
        return a->logit > b->logit ? -1 : 1;
    }
    return a->id < b->id ? -1 : 1;
}

static uint32_t soften(entry *e, uint32_t n, double temperature)
{
    double sum = 0.0, largest = e[0].logit;
    for (uint32_t i = 0; i < n; i++) {
        e[i].p = exp((e[i].logit - largest) / temperature);
        sum += e[i].p;
    }
    for (uint32_t i = 0; i < n; i++) {
        e[i].p /= sum;
    }
    return n;
}

/* The probability of each token by the words of sampler.h, one after the other. */
static void reference(const sampler_options *o, const float *logits, uint32_t n_vocab, double *p)
{
    entry e[MOST_TOKENS];
    uint32_t n = 0, kept;
    for (uint32_t i = 0; i < n_vocab; i++) {
        p[i] = 0.0;
        if (!isnan(logits[i]) && logits[i] >= -FLT_MAX) {
            e[n++] = (entry){.logit = logits[i] > FLT_MAX ? FLT_MAX : logits[i], .id = i};
        }
    }
    if (n == 0) {
        p[0] = 1.0;
        return;
    }
    qsort(e, n, sizeof e[0], compare_entries);
    n = o->top_k > 0 && o->top_k < n ? o->top_k : n;
    soften(e, n, 1.0);
    double sum = 0.0;
    for (kept = 0; kept < n && sum < o->top_p * (1.0 - 1e-14); kept++) {
        sum += e[kept].p;
    }
    n = o->top_p < 1.0 ? kept : n;
    for (kept = 0; kept < n && e[kept].p >= o->min_p * e[0].p; kept++) {}
    n = soften(e, kept, o->temperature);
    for (uint32_t i = 0; i < n; i++) {
        p[e[i].id] = e[i].p;
    }
}

/* Draw until every survivor must have been seen; compare with the reference's. */
static void assert_same_survivors(sampler_options options, const float *logits, uint32_t n)
{
    double p[MOST_TOKENS];
    bool is_seen[MOST_TOKENS] = {false};
    options.temperature = SURVIVORS_ONLY;
    reference(&options, logits, n, p);
    sampler *s = create(options, n);
    for (uint32_t i = 0; i < 50 * n; i++) {
        cellar_token token = sampler_next(s, logits);
        assert_in_range(token, 0, n - 1);
        is_seen[token] = true;
    }
    sampler_destroy(s);
    for (uint32_t i = 0; i < n; i++) {
        if (is_seen[i] != (p[i] > 0.0)) {
            fail_msg(
                "token %u of %u: seen %d, probability %g; top_k %u top_p %g min_p %g seed %llu",
                (unsigned)i, (unsigned)n, is_seen[i], p[i], (unsigned)options.top_k, options.top_p,
                options.min_p, (unsigned long long)options.seed);
        }
    }
}

static void fill(random_source *random, float *logits, uint32_t n, int kind)
{
    for (uint32_t i = 0; i < n; i++) {
        double u = random_source_unit(random);
        uint64_t pick = random_source_next(random) % 8;
        logits[i] = kind == 0 ? (float)(8.0 * u - 4.0) : (float)(int)(4.0 * u); /* 1: many ties */
        if (kind == 2) {
            logits[i] = pick == 0 ? NAN : pick == 1 ? -INFINITY : logits[i];
        }
        if (kind == 3) {
            logits[i] = pick < 2 ? INFINITY : pick == 2 ? FLT_MAX : logits[i];
        }
    }
}

static void check_filter(uint64_t seed, void (*set)(sampler_options *, random_source *, uint32_t))
{
    random_source random;
    random_source_seed(&random, seed);
    for (uint64_t round = 0; round < 400; round++) {
        float logits[MOST_TOKENS];
        uint32_t n = 1 + (uint32_t)(random_source_next(&random) % 40);
        sampler_options options = plain(round);
        fill(&random, logits, n, (int)(round % 4));
        set(&options, &random, n);
        assert_same_survivors(options, logits, n);
    }
}

static void set_top_k(sampler_options *o, random_source *random, uint32_t n)
{
    o->top_k = (uint32_t)(random_source_next(random) % (n + 2));
}

static void set_top_p(sampler_options *o, random_source *random, uint32_t n)
{
    (void)n;
    o->top_p = 1.0 - random_source_unit(random);
}

static void set_min_p(sampler_options *o, random_source *random, uint32_t n)
{
    (void)n;
    o->min_p = random_source_unit(random);
}

static void set_all(sampler_options *o, random_source *random, uint32_t n)
{
    set_top_k(o, random, n);
    set_top_p(o, random, n);
    set_min_p(o, random, n);
    o->min_p *= 0.2;
}

/* ---- filters -------------------------------------------------------------------------------- */

static void top_k_keeps_what_a_full_sort_keeps(void **state)
{
    (void)state;
    check_filter(1, set_top_k);
}

static void top_p_keeps_what_a_full_sort_keeps(void **state)
{
    (void)state;
    check_filter(2, set_top_p);
}

static void min_p_keeps_what_a_full_sort_keeps(void **state)
{
    (void)state;
    check_filter(3, set_min_p);
}

static void all_filters_together_keep_what_a_full_sort_keeps(void **state)
{
    (void)state;
    check_filter(4, set_all);
}

static void extreme_options_are_taken_literally(void **state)
{
    (void)state;
    const float logits[] = {0.5f, 3.0f, -1.0f, 3.0f, 2.9f};
    const float equal[] = {1.0f, 1.0f, 1.0f, 1.0f};
    for (uint64_t seed = 0; seed < 200; seed++) {
        sampler_options o = plain(seed);
        o.top_k = 1;
        assert_int_equal(next_of(o, logits, 5), 1);
        o = plain(seed);
        o.top_p = 5e-324;
        assert_int_equal(next_of(o, logits, 5), 1);
        o = plain(seed);
        o.top_p = 0.5; /* reached exactly by two of four */
        assert_in_range(next_of(o, equal, 4), 0, 1);
        o = plain(seed);
        o.temperature = 5e-324; /* only the two largest are left */
        cellar_token token = next_of(o, logits, 5);
        assert_true(token == 1 || token == 3);
        o.temperature = DBL_MAX;
        assert_in_range(next_of(o, logits, 5), 0, 4);
        o = plain(seed);
        o.min_p = 1.0;
        token = next_of(o, logits, 5);
        assert_true(token == 1 || token == 3);
        o = plain(seed);
        o.top_k = UINT32_MAX;
        o.repeat_last = 0;
        assert_in_range(next_of(o, logits, 5), 0, 4);
    }
}

/* ---- probabilities -------------------------------------------------------------------------- */

static double chi_square(sampler_options options, const float *logits, uint32_t n, uint32_t draws)
{
    double p[MOST_TOKENS], sum = 0.0;
    uint32_t counts[MOST_TOKENS] = {0};
    reference(&options, logits, n, p);
    sampler *s = create(options, n);
    for (uint32_t i = 0; i < draws; i++) {
        counts[sampler_next(s, logits)]++;
    }
    sampler_destroy(s);
    for (uint32_t i = 0; i < n; i++) {
        if (p[i] == 0.0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = p[i] * draws;
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return sum;
}

/* Chi-square with 9 degrees of freedom exceeds 27.9 once in a thousand times. */
static void draws_have_the_probabilities_of_the_softmax(void **state)
{
    (void)state;
    const float logits[] = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, 0.5f, -2.0f, 1.5f, -0.3f, 0.1f};
    const double temperatures[] = {0.7, 1.0, 1.8};
    for (size_t i = 0; i < 3; i++) {
        sampler_options o = plain(42 + i);
        o.temperature = temperatures[i];
        double x = chi_square(o, logits, 10, 100000);
        assert_true(x < 27.9);
        assert_true(x > 0.5); /* too good is no accident either */
    }
}

/* 4 survivors: 3 degrees of freedom, 16.3. */
static void the_temperature_applies_after_the_filters(void **state)
{
    (void)state;
    const float logits[] = {2.0f, 1.0f, 0.5f, 0.0f, -0.5f, -1.0f, -3.0f};
    sampler_options o = plain(7);
    o.top_k = 6;
    o.top_p = 0.9;
    o.temperature = 2.5;
    assert_true(chi_square(o, logits, 7, 100000) < 16.3);
}

static void the_same_seed_gives_the_same_tokens(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 5);
    float logits[MOST_TOKENS];
    sampler_options o = sampler_defaults();
    o.seed = 99;
    sampler *a = create(o, MOST_TOKENS), *b = create(o, MOST_TOKENS);
    o.seed = 100;
    sampler *c = create(o, MOST_TOKENS);
    int n_different = 0;
    for (int i = 0; i < 500; i++) {
        fill(&random, logits, MOST_TOKENS, i % 2);
        cellar_token token = sampler_next(a, logits);
        assert_int_equal(token, sampler_next(b, logits));
        n_different += token != sampler_next(c, logits);
        sampler_accept(a, token);
        sampler_accept(b, token);
    }
    assert_true(n_different > 100);
    sampler_destroy(a);
    sampler_destroy(b);
    sampler_destroy(c);
}

/* Written down once; whatever machine, compiler or library changes them breaks a promise. */
static void a_known_seed_gives_the_known_tokens(void **state)
{
    (void)state;
    static const cellar_token known[] = {27, 10, 46, 34, 27, 22, 36, 55, 6,  58, 48,
                                         36, 39, 29, 8,  15, 13, 60, 51, 46, 1,  55,
                                         41, 20, 39, 27, 46, 6,  1,  55, 60, 22};
    float logits[MOST_TOKENS];
    for (int i = 0; i < MOST_TOKENS; i++) {
        logits[i] = (float)((i * 37 + 11) % 64) * 0.125f - (float)(i % 5) * 0.3f;
    }
    sampler_options o = sampler_defaults();
    o.temperature = 1.7;
    o.min_p = 0.001;
    o.repeat_penalty = 1.15;
    o.seed = 20231114;
    sampler *s = create(o, MOST_TOKENS);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        cellar_token token = sampler_next(s, logits);
        assert_int_equal(token, known[i]);
        sampler_accept(s, token);
    }
    sampler_destroy(s);
}

/* ---- greedy and odd logits ------------------------------------------------------------------ */

static void greedy_takes_the_largest_and_the_lower_id_on_ties(void **state)
{
    (void)state;
    sampler_options o = plain(0);
    o.temperature = 0.0;
    assert_int_equal(next_of(o, (const float[]){1.0f, 5.0f, 2.0f, 5.0f}, 4), 1);
    assert_int_equal(next_of(o, (const float[]){NAN, -3.0f, NAN, -2.0f}, 4), 3);
    assert_int_equal(next_of(o, (const float[]){-INFINITY, 0.0f, INFINITY, INFINITY}, 4), 2);
    assert_int_equal(next_of(o, (const float[]){0.0f, -0.0f}, 2), 0);
    assert_int_equal(next_of(o, (const float[]){-FLT_MAX, -INFINITY}, 2), 0);
    o.temperature = -0.0;
    assert_int_equal(next_of(o, (const float[]){1.0f, 5.0f}, 2), 1);
}

static void with_nothing_finite_the_answer_is_token_0(void **state)
{
    (void)state;
    const float nothing[] = {-INFINITY, NAN, -INFINITY, -NAN};
    const double temperatures[] = {0.0, 1.0};
    for (size_t t = 0; t < 2; t++) {
        for (uint32_t n = 1; n <= 4; n++) {
            sampler_options o = sampler_defaults();
            o.temperature = temperatures[t];
            assert_int_equal(next_of(o, nothing, n), 0);
        }
    }
}

static void a_vocabulary_of_one_has_one_answer(void **state)
{
    (void)state;
    const float values[] = {0.0f, NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e-45f};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_int_equal(next_of(sampler_defaults(), &values[i], 1), 0);
    }
}

static void impossible_tokens_are_never_drawn(void **state)
{
    (void)state;
    const float logits[] = {-INFINITY, 1.0f, NAN, 1.0f, -FLT_MAX};
    sampler *s = create(plain(3), 5);
    for (int i = 0; i < 2000; i++) {
        cellar_token token = sampler_next(s, logits);
        assert_true(token == 1 || token == 3);
    }
    sampler_destroy(s);
}

static void logits_are_not_changed(void **state)
{
    (void)state;
    float logits[] = {1.0f, NAN, INFINITY, -2.0f}, before[4];
    memcpy(before, logits, sizeof logits);
    sampler_options o = sampler_defaults();
    o.repeat_penalty = 1.5;
    sampler *s = create(o, 4);
    for (cellar_token i = 0; i < 4; i++) {
        sampler_accept(s, i);
        sampler_next(s, logits);
    }
    sampler_destroy(s);
    assert_memory_equal(logits, before, sizeof logits);
}

/* ---- repetition penalty --------------------------------------------------------------------- */

static sampler *create_penalising(double penalty, uint32_t last)
{
    sampler_options o = plain(0);
    o.temperature = 0.0;
    o.repeat_penalty = penalty;
    o.repeat_last = last;
    return create(o, 3);
}

static void a_repeated_token_is_penalised_once(void **state)
{
    (void)state;
    sampler *s = create_penalising(1.2, 8);
    for (int i = 0; i < 5; i++) {
        sampler_accept(s, 0);
    }
    /* 2 / 1.2 = 1.67, and twice would be 1.39. */
    assert_int_equal(sampler_next(s, (const float[]){2.0f, 1.5f, 0.0f}), 0);
    assert_int_equal(sampler_next(s, (const float[]){2.0f, 1.7f, 0.0f}), 1);
    /* -1 * 1.2 = -1.2 */
    assert_int_equal(sampler_next(s, (const float[]){-1.0f, -1.3f, -9.0f}), 0);
    assert_int_equal(sampler_next(s, (const float[]){-1.0f, -1.1f, -9.0f}), 1);
    sampler_destroy(s);
}

static void a_penalty_below_one_favours_repetition(void **state)
{
    (void)state;
    sampler *s = create_penalising(0.5, 8);
    sampler_accept(s, 2);
    assert_int_equal(sampler_next(s, (const float[]){1.9f, 1.0f, 1.0f}), 2);
    assert_int_equal(sampler_next(s, (const float[]){-1.0f, -1.0f, -1.5f}), 2);
    sampler_destroy(s);
}

static bool is_among_last(const cellar_token *history, uint32_t n, uint32_t last, cellar_token id)
{
    for (uint32_t back = 1; back <= last && back <= n; back++) {
        if (history[n - back] == id) {
            return true;
        }
    }
    return false;
}

/* Token `id` leads, and stays ahead of the next one exactly if its logit is not halved. */
static void tokens_are_forgotten_after_repeat_last(void **state)
{
    (void)state;
    random_source random;
    random_source_seed(&random, 8);
    for (uint32_t last = 0; last <= 5; last++) {
        sampler *s = create_penalising(2.0, last);
        cellar_token history[200];
        for (uint32_t n = 1; n <= 200; n++) {
            history[n - 1] = (cellar_token)(random_source_next(&random) % 3);
            sampler_accept(s, history[n - 1]);
            for (cellar_token id = 0; id < 3; id++) {
                cellar_token other = (id + 1) % 3;
                float logits[3] = {-100.0f, -100.0f, -100.0f};
                bool is_halved = is_among_last(history, n, last, id);
                logits[id] = 1.0f;
                logits[other] = is_among_last(history, n, last, other) ? 1.5f : 0.75f;
                assert_int_equal(sampler_next(s, logits), is_halved ? other : id);
            }
        }
        sampler_destroy(s);
    }
}

static void tokens_out_of_range_are_not_remembered(void **state)
{
    (void)state;
    sampler *s = create_penalising(2.0, 1);
    sampler_accept(s, 0);
    const cellar_token strange[] = {-1, 3, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        sampler_accept(s, strange[i]);
    }
    assert_int_equal(sampler_next(s, (const float[]){1.0f, 0.9f, 0.0f}), 1); /* 0 still counts */
    sampler_destroy(s);
}

static void extreme_penalties_do_not_break_the_order(void **state)
{
    (void)state;
    const double penalties[] = {5e-324, DBL_MAX};
    for (size_t i = 0; i < 2; i++) {
        sampler *s = create_penalising(penalties[i], 4);
        sampler_accept(s, 0);
        sampler_accept(s, 1);
        const float logits[] = {FLT_MAX, -FLT_MAX, 1.0f};
        assert_int_equal(sampler_next(s, logits), i == 0 ? 0 : 2);
        assert_int_equal(sampler_next(s, (const float[]){0.0f, -1.0f, -INFINITY}), 0);
        sampler_destroy(s);
    }
}

/* ---- options -------------------------------------------------------------------------------- */

static void assert_refused(sampler_options options, uint32_t n_vocab, const char *name)
{
    sampler *s = (sampler *)&s;
    cellar_error error = {0};
    assert_int_equal(sampler_create(&options, n_vocab, &s, &error), CELLAR_INVALID);
    assert_int_equal(error.status, CELLAR_INVALID);
    assert_null(s);
    if (strncmp(error.message, name, strlen(name)) != 0) {
        fail_msg("\"%s\" does not begin with %s", error.message, name);
    }
    assert_int_equal(sampler_create(&options, n_vocab, &s, NULL), CELLAR_INVALID);
}

static void bad_options_are_refused_by_name(void **state)
{
    (void)state;
    const double bad_temperatures[] = {-0.1, NAN, INFINITY, -INFINITY};
    const double bad_top_p[] = {0.0, -0.5, 1.0000001, NAN, INFINITY};
    const double bad_min_p[] = {-1e-9, 1.0000001, NAN, INFINITY};
    const double bad_penalties[] = {0.0, -1.0, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        sampler_options o = sampler_defaults();
        o.temperature = bad_temperatures[i];
        assert_refused(o, 8, "temperature");
        o = sampler_defaults();
        o.min_p = bad_min_p[i];
        assert_refused(o, 8, "min_p");
        o = sampler_defaults();
        o.repeat_penalty = bad_penalties[i];
        assert_refused(o, 8, "repeat_penalty");
    }
    for (size_t i = 0; i < 5; i++) {
        sampler_options o = sampler_defaults();
        o.top_p = bad_top_p[i];
        assert_refused(o, 8, "top_p");
    }
    sampler_options o = sampler_defaults();
    assert_refused(o, 0, "n_vocab");
    assert_refused(o, UINT32_MAX, "n_vocab");
    o.repeat_last = UINT32_MAX;
    assert_refused(o, 8, "repeat_last");
}

static void the_defaults_are_those_of_the_header(void **state)
{
    (void)state;
    sampler_options o = sampler_defaults();
    assert_true(o.temperature == 0.8 && o.top_k == 40 && o.top_p == 0.95 && o.min_p == 0.05);
    assert_true(o.repeat_penalty == 1.0 && o.repeat_last == 64);
    sampler_destroy(create(o, 32000));
    sampler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k_keeps_what_a_full_sort_keeps),
        cmocka_unit_test(top_p_keeps_what_a_full_sort_keeps),
        cmocka_unit_test(min_p_keeps_what_a_full_sort_keeps),
        cmocka_unit_test(all_filters_together_keep_what_a_full_sort_keeps),
        cmocka_unit_test(extreme_options_are_taken_literally),
        cmocka_unit_test(draws_have_the_probabilities_of_the_softmax),
        cmocka_unit_test(the_temperature_applies_after_the_filters),
        cmocka_unit_test(the_same_seed_gives_the_same_tokens),
        cmocka_unit_test(a_known_seed_gives_the_known_tokens),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_id_on_ties),
        cmocka_unit_test(with_nothing_finite_the_answer_is_token_0),
        cmocka_unit_test(a_vocabulary_of_one_has_one_answer),
        cmocka_unit_test(impossible_tokens_are_never_drawn),
        cmocka_unit_test(logits_are_not_changed),
        cmocka_unit_test(a_repeated_token_is_penalised_once),
        cmocka_unit_test(a_penalty_below_one_favours_repetition),
        cmocka_unit_test(tokens_are_forgotten_after_repeat_last),
        cmocka_unit_test(tokens_out_of_range_are_not_remembered),
        cmocka_unit_test(extreme_penalties_do_not_break_the_order),
        cmocka_unit_test(bad_options_are_refused_by_name),
        cmocka_unit_test(the_defaults_are_those_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
