/*
 * unit_perplexity.c: the figures of perplexity.c against a computation that is as plain as can be.
 *
 * The plain one reads, for every scored token, everything before it in its window into an empty memory,
 * takes the logits after the last and does the sums in long double, twice through the vocabulary. The
 * rest: what may not matter does not, several texts, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/perplexity.h"
#include "support_model.h"
#include "support_t5.h"

#define N_TEXT 41u
#define VOCABULARY FIXTURE_VOCABULARY

static fixture made;
static model *tiny;
static cellar_token text[N_TEXT];

static int set_up(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    made = fixture_create(&shape);
    for (uint32_t i = 0; i < N_TEXT; i++) {
        text[i] = (cellar_token)((i * i * 31 + i * 7 + 5) % VOCABULARY);
    }
    return model_load(made.file, &tiny, NULL) != CELLAR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    model_free(tiny);
    fixture_destroy(&made);
    return 0;
}

static engine *make_engine(cellar_type type, uint32_t n_ubatch, uint32_t n_threads)
{
    engine_options options = engine_defaults();
    options.n_cells = 64;
    options.n_ubatch = n_ubatch;
    options.n_threads = n_threads;
    options.k_type = options.v_type = type;
    engine *e = NULL;
    cellar_error error;
    if (engine_create(tiny, &options, &e, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return e;
}

static perplexity_options make_options(uint32_t n_window, uint32_t n_step, cellar_token start)
{
    perplexity_options options = perplexity_defaults(n_window);
    options.n_step = n_step;
    options.start = start;
    return options;
}

static perplexity_result must_measure(engine *e, engine *exact, size_t n,
                                      const perplexity_options *options)
{
    perplexity_result result;
    cellar_error error;
    if (perplexity_measure(e, exact, text, n, options, &result, &error) != CELLAR_OK) {
        fail_msg("%s", error.message);
    }
    return result;
}

/* ---- the plain computation ------------------------------------------------------------------ */

/* log-probabilities [VOCABULARY] of what follows tokens [n] */
static void plain_row(engine *e, const cellar_token *tokens, uint32_t n, long double *row)
{
    float logits[VOCABULARY];
    cellar_seq seqs[N_TEXT + 1] = {0};
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    batch.seqs = seqs;
    const uint32_t last = n - 1;
    assert_int_equal(cellar_clear(engine_memory(e), NULL), CELLAR_OK);
    assert_int_equal(engine_decode(e, &batch, &last, 1, logits, NULL), CELLAR_OK);
    long double sum = 0;
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        sum += expl(logits[i]);
    }
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        row[i] = logits[i] - logl(sum);
    }
}

typedef struct plain {
    uint32_t n, n_same;
    long double loss[N_TEXT], exact[N_TEXT], divergence[N_TEXT];
} plain;

static uint32_t likeliest(const long double *row)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

/* Score one token by the tokens before it, n of them. */
static void plain_score(plain *p, engine *e, engine *exact, const cellar_token *before, uint32_t n,
                        cellar_token token)
{
    long double q[VOCABULARY], b[VOCABULARY];
    plain_row(e, before, n, q);
    plain_row(exact, before, n, b);
    p->loss[p->n] = -q[token];
    p->exact[p->n] = -b[token];
    p->divergence[p->n] = 0;
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        p->divergence[p->n] += expl(b[i]) * (b[i] - q[i]);
    }
    p->n_same += likeliest(q) == likeliest(b);
    p->n++;
}

/* Every token in the first window that holds it; windows are looked for from the beginning. */
static plain plain_measure(engine *e, engine *exact, uint32_t n, const perplexity_options *o)
{
    plain p = {.n = 0};
    const uint32_t room = o->n_window - (o->start >= 0);
    for (uint32_t at = o->start >= 0 ? 0 : 1; at < n; at++) {
        uint32_t first = 0;
        while (first + room <= at) {
            first += o->n_step;
        }
        cellar_token before[N_TEXT + 1];
        uint32_t n_before = 0;
        if (o->start >= 0) {
            before[n_before++] = o->start;
        }
        for (uint32_t i = first; i < at; i++) {
            before[n_before++] = text[i];
        }
        plain_score(&p, e, exact, before, n_before, text[at]);
    }
    return p;
}

static long double plain_mean(const long double *x, uint32_t n, long double *error)
{
    long double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += x[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += (x[i] - sum / n) * (x[i] - sum / n);
    }
    *error = n > 1 ? sqrtl(squares / (n - 1) / n) : 0;
    return sum / n;
}

static void assert_near(const char *what, double found, long double expected)
{
    if (!(fabsl(found - expected) <= 1e-9L * (1 + fabsl(expected)))) {
        fail_msg("%s: %.15g, expected %.15Lg", what, found, expected);
    }
}

static int compare_numbers(const void *left, const void *right)
{
    const long double a = *(const long double *)left, b = *(const long double *)right;
    return a < b ? -1 : a > b;
}

static void assert_same_figures(const perplexity_result *found, plain *p)
{
    long double error, difference[N_TEXT];
    assert_int_equal(found->n_scored, p->n);
    assert_near("loss", found->loss.value, plain_mean(p->loss, p->n, &error));
    assert_near("its error", found->loss.error, error);
    assert_near("perplexity", found->perplexity.value, expl(plain_mean(p->loss, p->n, &error)));
    const perplexity_comparison *c = &found->comparison;
    assert_near("exact", c->exact.value, expl(plain_mean(p->exact, p->n, &error)));
    for (uint32_t i = 0; i < p->n; i++) {
        difference[i] = p->loss[i] - p->exact[i];
    }
    const long double ratio = expl(plain_mean(difference, p->n, &error));
    assert_near("ratio", c->ratio.value, ratio);
    assert_near("its error", c->ratio.error, ratio * error);
    assert_near("divergence", c->divergence.value, plain_mean(p->divergence, p->n, &error));
    assert_near("its error", c->divergence.error, error);
    qsort(p->divergence, p->n, sizeof *p->divergence, compare_numbers);
    assert_near("median", c->median, p->divergence[(p->n + 1) / 2 - 1]);
    assert_near("most", c->most, p->divergence[p->n - 1]);
    assert_near("99%", c->percentile_99, p->divergence[(99 * p->n + 99) / 100 - 1]);
    assert_near("same", c->same_best, (long double)p->n_same / p->n);
}

static void the_figures_are_those_of_the_plain_computation(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_BF16, 16, 1), *exact = make_engine(CELLAR_F32, 16, 1);
    static const struct {
        uint32_t n, window, step;
        cellar_token start;
    } cases[] = {{N_TEXT, 12, 5, 1},   {N_TEXT, 12, 5, -1},  {N_TEXT, 12, 11, 1},
                 {N_TEXT, 12, 11, -1}, {N_TEXT, 2, 1, -1},   {N_TEXT, 2, 1, 1},
                 {N_TEXT, 64, 32, 1},  {N_TEXT, 41, 20, -1}, {N_TEXT, 40, 20, 1},
                 {1, 12, 5, 1},        {2, 12, 5, -1},       {12, 12, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        perplexity_options options = make_options(cases[i].window, cases[i].step, cases[i].start);
        plain p = plain_measure(e, exact, cases[i].n, &options);
        perplexity_result found = must_measure(e, exact, cases[i].n, &options);
        assert_same_figures(&found, &p);
        assert_true(cases[i].n < 12 || found.comparison.divergence.value > 0);
        assert_true(found.n_read <= perplexity_work(&options, cases[i].n));
        assert_true(cases[i].start < 0 || found.n_read == perplexity_work(&options, cases[i].n));
    }
    engine_destroy(e);
    engine_destroy(exact);
}

/* ---- what may not matter -------------------------------------------------------------------- */

static void pieces_and_threads_do_not_matter(void **state)
{
    (void)state;
    const perplexity_options options = make_options(30, 9, 1);
    perplexity_result first;
    static const uint32_t ways[][2] = {{64, 1}, {1, 1}, {3, 1}, {7, 3}, {16, 2}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        engine *e = make_engine(CELLAR_BF16, ways[i][0], ways[i][1]);
        engine *exact = make_engine(CELLAR_F32, ways[i][0], ways[i][1]);
        perplexity_result found = must_measure(e, exact, N_TEXT, &options);
        first = i == 0 ? found : first;
        assert_memory_equal(&found.loss, &first.loss, sizeof found.loss);
        assert_memory_equal(&found.comparison, &first.comparison, sizeof found.comparison);
        assert_int_equal(found.n_read, first.n_read);
        engine_destroy(e);
        engine_destroy(exact);
    }
}

static void equal_memories_do_not_diverge(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_F16, 16, 1), *same = make_engine(CELLAR_F16, 5, 2);
    const perplexity_options options = make_options(20, 10, 1);
    const perplexity_result found = must_measure(e, same, N_TEXT, &options);
    assert_true(found.comparison.most == 0 && found.comparison.same_best == 1);
    assert_true(found.comparison.ratio.value == 1 && found.comparison.ratio.error == 0);
    assert_true(found.comparison.exact.value == found.perplexity.value);
    engine_destroy(e);
    engine_destroy(same);
}

/* Turned rows hold the same keys and values but for rounding: nearly the same, by other bits. */
static void turned_rows_give_nearly_the_same(void **state)
{
    (void)state;
    engine *exact = make_engine(CELLAR_F32, 16, 1);
    const perplexity_options how = make_options(20, 10, 1);
    for (int which = 1; which < 4; which++) {
        engine_options options = engine_defaults();
        options.n_cells = 64;
        options.k_type = options.v_type = CELLAR_F32;
        options.rotate_k = (which & 1) != 0;
        options.rotate_v = (which & 2) != 0;
        engine *e = NULL;
        assert_int_equal(engine_create(tiny, &options, &e, NULL), CELLAR_OK);
        const perplexity_result found = must_measure(e, exact, N_TEXT, &how);
        assert_true(found.loss.value != found.comparison.exact.value);
        assert_true(found.comparison.most > 0 && found.comparison.most < 1e-8);
        engine_destroy(e);
    }
    engine_destroy(exact);
}

/* What was in the memory before is forgotten, and the same question has the same answer. */
static void a_second_measurement_gives_the_same(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_F16, 16, 1);
    const perplexity_options options = make_options(20, 10, 1);
    const perplexity_result first = must_measure(e, NULL, N_TEXT, &options);
    const perplexity_result second = must_measure(e, NULL, N_TEXT, &options);
    assert_true(first.loss.value == second.loss.value && !first.is_compared);
    engine_destroy(e);
}

/* ---- several texts -------------------------------------------------------------------------- */

static void several_texts_are_the_texts_one_after_the_other(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_F16, 16, 1);
    static const size_t ends[] = {0, 17, 17, 18, N_TEXT};
    for (cellar_token start = -1; start < 2; start += 2) {
        perplexity_options options = make_options(12, 5, start);
        double sum = 0;
        uint64_t n = 0;
        for (size_t i = 0, from = 0; i < 5; from = ends[i++]) {
            const size_t length = ends[i] - from;
            if (length > (start < 0 ? 1u : 0u)) {
                perplexity_result part;
                assert_int_equal(
                    perplexity_measure(e, NULL, text + from, length, &options, &part, NULL),
                    CELLAR_OK);
                sum += part.loss.value * (double)part.n_scored;
                n += part.n_scored;
            }
        }
        options.ends = ends;
        options.n_texts = 5;
        const perplexity_result found = must_measure(e, NULL, N_TEXT, &options);
        assert_int_equal(found.n_scored, n);
        assert_near("loss", found.loss.value, sum / (double)n);
        assert_true(found.n_read <= perplexity_work(&options, N_TEXT));
    }
    engine_destroy(e);
}

/* ---- an encoder ----------------------------------------------------------------------------- */

#define T5_START 3

static const cellar_token sources[2][4] = {{7, 8, 9, 1}, {30, 2, 30, 1}};

static cellar_status encode_source(void *context, size_t i, cellar_error *error)
{
    (void)error;
    support_t5_encode(context, 0, sources[i], 4);
    return CELLAR_OK;
}

/* The mean of -log p over two texts, from logits of decoding each behind its own source. */
static double plain_loss(engine *e, const cellar_token *tokens, const size_t *ends)
{
    double sum = 0;
    for (size_t i = 0, from = 0; i < 2; from = ends[i++]) {
        const uint32_t n = (uint32_t)(ends[i] - from);
        cellar_token read[16] = {T5_START};
        float logits[16 * T5_VOCAB];
        memcpy(read + 1, tokens + from, (n - 1) * sizeof *read);
        assert_int_equal(cellar_clear(engine_memory(e), NULL), CELLAR_OK);
        support_t5_encode(e, 0, sources[i], 4);
        support_t5_decode(e, 0, read, n, logits);
        for (uint32_t t = 0; t < n; t++) {
            double total = 0;
            for (uint32_t v = 0; v < T5_VOCAB; v++) {
                total += exp(logits[t * T5_VOCAB + v]);
            }
            sum += log(total) - logits[t * T5_VOCAB + (uint32_t)tokens[from + t]];
        }
    }
    return sum / (double)ends[1];
}

static void each_text_is_read_behind_what_the_encoder_read(void **state)
{
    (void)state;
    static const size_t ends[] = {9, 21};
    cellar_token tokens[21];
    for (uint32_t i = 0; i < 21; i++) {
        tokens[i] = (cellar_token)((i * 13 + 4) % T5_VOCAB);
    }
    recipe *r = support_t5_recipe(true);
    support_t5 t5;
    support_t5_open(r, NULL, &t5);
    perplexity_options options = make_options(16, 8, T5_START);
    perplexity_result found;
    options.ends = ends;
    options.n_texts = 2;
    options.context = t5.engine;
    options.begin_text = encode_source;
    assert_int_equal(perplexity_measure(t5.engine, NULL, tokens, 21, &options, &found, NULL),
                     CELLAR_OK);
    assert_int_equal(found.n_scored, 21);
    assert_near("loss", found.loss.value, plain_loss(t5.engine, tokens, ends));
    support_t5_close(&t5);
    recipe_destroy(r);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void refuse(engine *e, size_t n, perplexity_options options, const char *word)
{
    perplexity_result result;
    cellar_error error = {.status = CELLAR_OK};
    assert_int_equal(perplexity_measure(e, NULL, text, n, &options, &result, &error),
                     CELLAR_INVALID);
    if (strstr(error.message, word) == NULL) {
        fail_msg("'%s' says nothing of '%s'", error.message, word);
    }
}

static void bad_options_and_texts_are_refused(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_F16, 16, 1);
    refuse(e, N_TEXT, make_options(0, 1, 1), "window");
    refuse(e, N_TEXT, make_options(1, 1, 1), "window");
    refuse(e, N_TEXT, make_options(65, 1, 1), "window");
    refuse(e, N_TEXT, make_options(12, 0, 1), "step");
    refuse(e, N_TEXT, make_options(12, 12, 1), "step");
    refuse(e, N_TEXT, make_options(12, UINT32_MAX, -1), "step");
    refuse(e, 0, make_options(12, 5, 1), "longer");
    refuse(e, 0, make_options(12, 5, -1), "longer");
    refuse(e, 1, make_options(12, 5, -1), "longer");
    static const size_t falling[] = {20, 10}, beyond[] = {20, N_TEXT + 1}, early[] = {20, 30};
    perplexity_options options = make_options(12, 5, 1);
    options.n_texts = 2;
    options.ends = falling;
    refuse(e, N_TEXT, options, "text 1");
    options.ends = beyond;
    refuse(e, N_TEXT, options, "text 1");
    options.ends = early;
    refuse(e, N_TEXT, options, "longer");
    for (int i = 0; i < 2; i++) {
        const cellar_token before = text[30];
        text[30] = i == 0 ? -1 : (cellar_token)VOCABULARY;
        refuse(e, N_TEXT, make_options(12, 5, 1), "token 30");
        text[30] = before;
    }
    engine_destroy(e);
}

static bool stop_at_second(void *context, size_t n_done, size_t n_tokens,
                           const perplexity_result *found)
{
    uint32_t *calls = context;
    assert_true(n_done <= n_tokens && found->n_scored == n_done && found->perplexity.value > 1);
    return ++*calls < 2;
}

static void it_can_be_stopped(void **state)
{
    (void)state;
    engine *e = make_engine(CELLAR_F16, 16, 1);
    uint32_t calls = 0;
    perplexity_options options = make_options(12, 5, 1);
    options.context = &calls;
    options.progress = stop_at_second;
    perplexity_result result;
    assert_int_equal(perplexity_measure(e, NULL, text, N_TEXT, &options, &result, NULL),
                     CELLAR_REFUSED);
    assert_int_equal(calls, 2);
    assert_int_equal(result.n_scored, 11 + 5);
    engine_destroy(e);
}

/* A model of NaNs gives no figure. */
static void logits_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    const gguf_tensor *norm = gguf_find_tensor(made.file, "output_norm.weight");
    assert_non_null(norm);
    const fixture_shape shape = fixture_default();
    fixture broken = fixture_create(&shape);
    memset(broken.bytes + norm->offset, 0xff, norm->n_bytes);
    model *before = tiny;
    assert_int_equal(model_load(broken.file, &tiny, NULL), CELLAR_OK);
    engine *e = make_engine(CELLAR_F16, 16, 1);
    const perplexity_options options = make_options(12, 5, 1);
    perplexity_result result;
    cellar_error error;
    assert_int_equal(perplexity_measure(e, NULL, text, N_TEXT, &options, &result, &error),
                     CELLAR_CORRUPT);
    assert_int_equal(error.at, 0);
    engine_destroy(e);
    model_free(tiny);
    tiny = before;
    fixture_destroy(&broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_figures_are_those_of_the_plain_computation),
        cmocka_unit_test(pieces_and_threads_do_not_matter),
        cmocka_unit_test(equal_memories_do_not_diverge),
        cmocka_unit_test(turned_rows_give_nearly_the_same),
        cmocka_unit_test(a_second_measurement_gives_the_same),
        cmocka_unit_test(several_texts_are_the_texts_one_after_the_other),
        cmocka_unit_test(each_text_is_read_behind_what_the_encoder_read),
        cmocka_unit_test(bad_options_and_texts_are_refused),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
