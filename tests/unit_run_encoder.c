/*
 * unit_run_encoder.c: prompts of `cellar run` for a model with an encoder.
 *
 * What is refused is refused before anything is read, and leaves the prompt as it was; what is read
 * becomes an encoding, and the token that an answer begins with takes the prompt's place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/run_encoder.h"
#include "support_t5.h"

static void assert_refused(const recipe *r, const char *session, const char *word)
{
    support_t5 made;
    cellar_error error = {.message = ""};
    support_t5_open(r, NULL, &made);
    assert_int_equal(run_encoder_check(made.made.model, session, &error), CELLAR_UNSUPPORTED);
    assert_non_null(strstr(error.message, word));
    support_t5_close(&made);
}

static void sessions_are_refused(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    assert_refused(r, "tale.cellar", "t5 run without --session");
    recipe_destroy(r);
}

static void a_file_must_say_how_an_answer_begins(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    recipe_drop_key(r, "decoder_start_token_id");
    assert_refused(r, NULL, "t5.decoder_start_token_id");
    recipe_destroy(r);
}

static void the_prompt_is_encoded_and_the_answer_begins(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    support_t5 made;
    support_t5_open(r, NULL, &made);
    cellar_token tokens[5] = {7, 8, 9, 10, 11};
    size_t n = 5;
    assert_int_equal(run_encoder_check(made.made.model, NULL, NULL), CELLAR_OK);
    assert_int_equal(run_encoder_read(made.engine, tokens, &n, NULL), CELLAR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(tokens[0], 3);
    assert_int_equal(engine_encoded_tokens(made.engine, 0), 5);
    float logits[T5_VOCAB];
    support_t5_decode(made.engine, 0, tokens, 1, logits);
    support_t5_close(&made);
    recipe_destroy(r);
}

static void a_prompt_that_is_too_long_stays_as_it_was(void **state)
{
    (void)state;
    recipe *r = support_t5_recipe(true);
    engine_options options = support_t5_options();
    options.n_ubatch = 4;
    support_t5 made;
    support_t5_open(r, &options, &made);
    cellar_token tokens[5] = {7, 8, 9, 10, 11};
    size_t n = 5;
    cellar_error error;
    assert_int_equal(run_encoder_read(made.engine, tokens, &n, &error), CELLAR_FULL);
    assert_non_null(strstr(error.message, "the text for the encoder has 5 tokens"));
    assert_int_equal(n, 5);
    assert_int_equal(tokens[0], 7);
    assert_int_equal(engine_encoded_tokens(made.engine, 0), 0);
    support_t5_close(&made);
    recipe_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_are_refused),
        cmocka_unit_test(a_file_must_say_how_an_answer_begins),
        cmocka_unit_test(the_prompt_is_encoded_and_the_answer_begins),
        cmocka_unit_test(a_prompt_that_is_too_long_stays_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
