/*
 * unit_storyteller.c: the built-in model gives here what it gives where it was trained.
 *
 * models/storyteller.golden.json holds, for some prompts, token ids, logits and greedy
 * continuations that the training code computed in float64 from the same file
 * (tools/builtin_model/evaluate.py --golden). Skipped where either file is absent. The tests run in
 * the root of the repository.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/generate.h"

#define MODEL "models/storyteller.gguf"
#define GOLDEN "models/storyteller.golden.json"
#define NEAR 2e-4     /* of a logit; the file gives six digits after the point */
#define ROUNDED 2e-3  /* the same where activations may be rounded to 16 bits */
#define NEAR_TIE 1e-3 /* where the best two are nearer than this, either may win */

static gguf_file *file;
static model *storyteller;
static tokenizer *tok;
static json_t *golden;

static int set_up(void **state)
{
    (void)state;
    cellar_error error;
    golden = json_load_file(GOLDEN, 0, NULL);
    if (golden == NULL || gguf_open(MODEL, &file, &error) != CELLAR_OK) {
        print_message("skipped: %s or %s is not here\n", GOLDEN, MODEL);
        json_decref(golden);
        golden = NULL;
        return 0;
    }
    return model_load(file, &storyteller, &error) != CELLAR_OK ||
           tokenizer_create(file, &tok, &error) != CELLAR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    tokenizer_destroy(tok);
    model_free(storyteller);
    gguf_close(file);
    json_decref(golden);
    return 0;
}

static engine *new_engine(bool is_exact)
{
    engine_options options = engine_defaults();
    options.n_cells = 512;
    options.n_threads = 2;
    options.k_type = options.v_type = CELLAR_F32;
    options.is_exact = is_exact;
    engine *e;
    assert_int_equal(engine_create(storyteller, &options, &e, NULL), CELLAR_OK);
    return e;
}

/* The ids of a text, checked against the list of the file; from malloc. */
static cellar_token *assert_ids(const char *text, size_t length, const json_t *expected, size_t *n)
{
    cellar_token *ids;
    const tokenize_options how = {.add_special = true};
    assert_int_equal(tokenizer_encode(tok, text, length, how, &ids, n, NULL), CELLAR_OK);
    if (*n != json_array_size(expected)) {
        fail_msg("'%s': %zu ids, expected %zu", text, *n, json_array_size(expected));
    }
    for (size_t i = 0; i < *n; i++) {
        assert_int_equal(ids[i], json_integer_value(json_array_get(expected, i)));
    }
    return ids;
}

static void texts_have_the_ids_of_the_training_code(void **state)
{
    (void)state;
    if (golden == NULL) {
        skip();
    }
    size_t i, n;
    json_t *one;
    assert_true(json_array_size(json_object_get(golden, "texts")) > 0);
    json_array_foreach(json_object_get(golden, "texts"), i, one) {
        const json_t *text = json_object_get(one, "text");
        free(assert_ids(json_string_value(text), json_string_length(text),
                        json_object_get(one, "ids"), &n));
    }
}

static void check_logits(const json_t *one, const float *logits, double near)
{
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(one, "top_logits"), i, pair) {
        json_int_t id = json_integer_value(json_array_get(pair, 0));
        double value = json_number_value(json_array_get(pair, 1));
        assert_in_range(id, 0, storyteller->n_vocab - 1);
        assert_true(fabs((double)logits[id] - value) < near);
    }
    double sum = 0;
    for (uint32_t id = 0; id < storyteller->n_vocab; id++) {
        sum += (double)logits[id];
    }
    double expected = json_number_value(json_object_get(one, "logits_sum"));
    /* Rounding may move all logits together, which no probability sees. */
    double most = near == NEAR ? near * sqrt(storyteller->n_vocab) : near * storyteller->n_vocab;
    assert_true(fabs(sum - expected) < most + 1e-5 * fabs(expected));
}

static cellar_token largest(const float *logits)
{
    cellar_token best = 0;
    for (uint32_t id = 1; id < storyteller->n_vocab; id++) {
        best = logits[id] > logits[best] ? (cellar_token)id : best;
    }
    return best;
}

/* Read n tokens and give the logits of the last. */
static void read_tokens(engine *e, const cellar_token *tokens, uint32_t n, float *logits)
{
    cellar_batch batch = cellar_batch_init();
    batch.n_tokens = n;
    batch.tokens = tokens;
    const uint32_t last = n - 1;
    assert_int_equal(engine_decode(e, &batch, &last, 1, logits, NULL), CELLAR_OK);
}

static void follow_prompts(bool is_exact)
{
    if (golden == NULL) {
        skip();
    }
    float *logits = calloc(storyteller->n_vocab, sizeof *logits);
    assert_non_null(logits);
    size_t i, n;
    json_t *one;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 0);
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const char *prompt = json_string_value(json_object_get(one, "prompt"));
        cellar_token *ids = assert_ids(prompt, strlen(prompt), json_object_get(one, "ids"), &n);
        engine *e = new_engine(is_exact);
        read_tokens(e, ids, (uint32_t)n, logits);
        check_logits(one, logits, is_exact ? NEAR : ROUNDED);
        const json_t *greedy = json_object_get(one, "greedy_ids");
        bool is_certain = json_number_value(json_object_get(one, "smallest_margin")) > NEAR_TIE;
        for (size_t j = 0; is_certain && j < json_array_size(greedy); j++) {
            cellar_token next = largest(logits);
            assert_int_equal(next, json_integer_value(json_array_get(greedy, j)));
            read_tokens(e, &next, 1, logits);
        }
        if (!is_certain) {
            print_message("'%s': two tokens are nearly as likely somewhere; not followed\n",
                          prompt);
        }
        engine_destroy(e);
        free(ids);
    }
    free(logits);
}

static void prompts_have_the_logits_and_continuations_of_the_training_code(void **state)
{
    (void)state;
    follow_prompts(true);
}

static void so_they_have_with_activations_as_this_processor_likes_them(void **state)
{
    (void)state;
    follow_prompts(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_ids_of_the_training_code),
        cmocka_unit_test(prompts_have_the_logits_and_continuations_of_the_training_code),
        cmocka_unit_test(so_they_have_with_activations_as_this_processor_likes_them),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
