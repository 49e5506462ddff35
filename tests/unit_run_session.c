/*
 * unit_run_session.c: a story that is closed and gone on with is the story that was never closed.
 *
 * Token by token and, at the end, logit by logit, bit for bit: wherever it is cut, with shifts, with
 * every way to go on. And: what a prompt means to a text that is there, what a stop leaves, forks
 * and conversions. What is refused is in unit_odd_session.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/session_command.h"
#include "support_tale.h"

#define PROMPT "Once upon a time"

static void must_tell(tale *t, const tale_piece *piece)
{
    if (tale_tell(t, piece) != CELLAR_OK) {
        fail_msg("%s", t->error.message);
    }
}

/* The story without a break, for comparison. */
static tale *whole_story(const fixture_shape *shape, const tale_piece *piece)
{
    tale *t = tale_create(shape);
    tale_piece alone = *piece;
    alone.file = NULL;
    must_tell(t, &alone);
    return t;
}

static void assert_same_story(const tale *a, const tale *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static void a_story_in_two_pieces_is_the_story(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale_piece all = tale_piece_default(PROMPT);
    tale *whole = whole_story(&shape, &all);
    for (uint64_t first = 0; first < all.n_limit; first++) {
        tale *t = tale_create(&shape);
        tale_piece piece = all;
        piece.n_limit = first;
        must_tell(t, &piece);
        piece.prompt = NULL;
        piece.n_limit = all.n_limit - first;
        must_tell(t, &piece);
        assert_same_story(t, whole);
        assert_int_equal(t->result.n_read, 1);
        tale_destroy(t);
    }
    tale_destroy(whole);
}

/* One token at a time, through cells that are full again and again. */
static void a_story_that_shifts_goes_on_as_if_it_were_never_closed(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale_piece all = tale_piece_default("Once");
    all.n_cells = 24;
    all.n_limit = 70;
    tale *whole = whole_story(&shape, &all);
    assert_true(whole->result.n_shifts > 3);
    for (uint64_t step = 1; step < 30; step += 5) {
        tale *t = tale_create(&shape);
        tale_piece piece = all;
        for (uint64_t told = 0; told < all.n_limit; told += piece.n_limit) {
            piece.n_limit = told + step < all.n_limit ? step : all.n_limit - told;
            piece.prompt = told == 0 ? all.prompt : NULL;
            must_tell(t, &piece);
        }
        assert_same_story(t, whole);
        tale_destroy(t);
    }
    tale_destroy(whole);
}

/* Without a seed a session goes on with its numbers; with another one, with that one's. */
static void random_numbers_go_on_unless_a_seed_gives_others(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    const tale_piece all = tale_piece_default(PROMPT);
    tale *whole = whole_story(&shape, &all);
    for (int other = 0; other < 2; other++) {
        tale *t = tale_create(&shape);
        tale_piece piece = all;
        piece.n_limit = 8;
        must_tell(t, &piece);
        piece.prompt = NULL;
        piece.n_limit = 12;
        piece.seed = 99;
        piece.is_seeded = other == 1;
        must_tell(t, &piece);
        assert_int_equal(t->n_tokens, whole->n_tokens);
        const size_t size = t->n_tokens * sizeof *t->tokens;
        assert_int_equal(memcmp(t->tokens, whole->tokens, size) != 0, other);
        tale_destroy(t);
    }
    tale_destroy(whole);
}

/* Stopped anywhere, in the prompt or in the answer, and gone on with: the same story. */
static void a_story_that_was_stopped_is_told_to_its_end(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    const tale_piece all = tale_piece_default("A long beginning that takes several steps to read");
    tale *whole = whole_story(&shape, &all);
    unsigned n_in_prompt = 0, n_in_answer = 0;
    for (uint64_t stop = 3; stop < 60; stop += 4) {
        tale *t = tale_create(&shape);
        tale_piece piece = all;
        piece.stop_after = stop;
        must_tell(t, &piece);
        assert_int_equal(t->result.ended, GENERATE_ENDED_STOPPED);
        n_in_prompt += t->result.n_generated == 0;
        n_in_answer += t->result.n_generated > 0;
        piece.n_limit = all.n_limit - t->result.n_generated;
        piece.stop_after = UINT64_MAX;
        piece.prompt = NULL;
        must_tell(t, &piece);
        assert_same_story(t, whole);
        tale_destroy(t);
    }
    assert_true(n_in_prompt > 1 && n_in_answer > 1);
    tale_destroy(whole);
}

/* What is in the file already is not written again: it grows by what was added. */
static void saving_costs_what_was_added(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.n_embd = 64;
    shape.n_heads = shape.n_kv_heads = 4;
    shape.k_size = shape.v_size = 32;
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    piece.n_limit = 150;
    must_tell(t, &piece);
    size_t whole, after;
    free(tale_read(t, "tale", &whole));
    piece.prompt = NULL;
    piece.n_limit = 5;
    must_tell(t, &piece);
    free(tale_read(t, "tale", &after));
    assert_in_range(after, whole + 1, whole + whole / 8);
    tale_destroy(t);
}

/* ---- prompts -------------------------------------------------------------------------------- */

static void a_prompt_that_is_there_already_adds_nothing(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale_piece piece = tale_piece_default(PROMPT);
    tale *whole = whole_story(&shape, &piece);
    tale *t = tale_create(&shape);
    piece.n_limit = 10;
    must_tell(t, &piece);
    must_tell(t, &piece); /* the same command once more */
    assert_same_story(t, whole);
    tale_destroy(t);
    tale_destroy(whole);
}

static void a_prompt_that_goes_further_adds_the_rest(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape), *u = tale_create(&shape);
    tale_piece piece = tale_piece_default("Once upon");
    piece.n_limit = 0;
    must_tell(t, &piece);
    must_tell(u, &piece);
    piece.prompt = "Once upon a time";
    piece.n_limit = 5;
    must_tell(t, &piece);
    const size_t n_prompt = t->result.n_known + t->result.n_read;
    assert_true(t->result.n_read < n_prompt);
    piece.prompt = " a time"; /* said alone it means the same */
    must_tell(u, &piece);
    assert_same_story(t, u);
    tale_destroy(t);
    tale_destroy(u);
}

static void another_prompt_is_added_whatever_it_says(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default("abc");
    piece.n_limit = 3;
    must_tell(t, &piece);
    const uint32_t before = t->n_tokens;
    piece.prompt = "xyz";
    piece.n_limit = 0;
    must_tell(t, &piece);
    assert_int_equal(t->n_tokens, before + 3); /* no space before it, and no start of a text */
    assert_int_equal(t->result.n_read, 4);     /* and the token that was only written */
    tale_destroy(t);
}

/* What agrees is not read again, the rest is as if it had never been. */
static void a_prompt_that_replaces_gives_the_text_of_the_prompt_alone(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale_piece alone = tale_piece_default("A question: how old is the house?");
    tale *whole = whole_story(&shape, &alone);
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default("A question: how old is the tree?");
    must_tell(t, &piece);
    alone.replaces = true;
    must_tell(t, &alone);
    assert_same_story(t, whole);
    assert_true(t->result.n_known > 10 && t->result.n_read < 12);
    must_tell(t, &alone); /* once more: all but the last token is there */
    assert_same_story(t, whole);
    assert_int_equal(t->result.n_read, 1);
    tale_destroy(t);
    tale_destroy(whole);
}

/* What stands behind a shift was read with what is forgotten, so it is not the prompt's. */
static void what_has_shifted_is_not_taken_for_a_prompt(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default("abcdefgh");
    piece.n_cells = 24;
    piece.n_limit = 40;
    must_tell(t, &piece);
    assert_true(t->result.n_shifts > 0);
    piece.n_limit = 5;
    piece.replaces = true;
    tale *whole = whole_story(&shape, &piece);
    must_tell(t, &piece);
    assert_same_story(t, whole);
    assert_int_equal(t->result.n_known, piece.n_keep);
    tale_destroy(t);
    tale_destroy(whole);
}

/* ---- forks and conversions ------------------------------------------------------------------ */

static session_copy_options copy_options(tale *t, char to[160])
{
    static char from[160];
    snprintf(from, sizeof from, "%s", tale_path(t, "tale"));
    snprintf(to, 160, "%s", tale_path(t, "copy"));
    return (session_copy_options){.from = from, .to = to, .at = -1, .k_type = -1, .v_type = -1};
}

static void must_copy(tale *t, const session_copy_options *options)
{
    bool is_about_to;
    if (session_copy(options, &is_about_to, &t->error) != CELLAR_OK) {
        fail_msg("%s", t->error.message);
    }
}

/* Forked after its prompt a story is one that begins with the prompt. */
static void a_fork_at_a_token_is_a_story_that_begins_so(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale_piece other = tale_piece_default(PROMPT);
    other.seed = 31;
    tale *whole = whole_story(&shape, &other);
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    char to[160];
    session_copy_options options = copy_options(t, to);
    options.is_fork = true;
    options.at = t->n_tokens - 20;
    must_copy(t, &options);
    size_t size, size_after;
    unsigned char *original = tale_read(t, "tale", &size);
    other.file = "copy";
    other.prompt = NULL;
    must_tell(t, &other);
    assert_same_story(t, whole);
    unsigned char *after = tale_read(t, "tale", &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(original, after, size); /* the first one does not notice */
    free(original);
    free(after);
    tale_destroy(t);
    tale_destroy(whole);
}

static void a_fork_is_refused_where_there_is_nothing(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    char to[160];
    bool is_about_to;
    session_copy_options options = copy_options(t, to);
    options.at = (int64_t)t->n_tokens + 1;
    assert_int_equal(session_copy(&options, &is_about_to, &t->error), CELLAR_INVALID);
    assert_false(is_about_to);
    options.at = t->n_tokens;
    must_copy(t, &options);
    assert_int_equal(session_copy(&options, &is_about_to, &t->error), CELLAR_INVALID);
    assert_true(is_about_to); /* it is there already */
    options.overwrites = true;
    must_copy(t, &options);
    options.from = tale_path(t, "missing");
    assert_int_equal(session_copy(&options, &is_about_to, &t->error), CELLAR_NOT_FOUND);
    tale_destroy(t);
}

/* Rows converted by a tool are the rows that loading converts. */
static void a_converted_session_is_what_loading_makes_of_it(void **state)
{
    (void)state;
    fixture_shape shape = fixture_default();
    shape.n_embd = 64;
    shape.n_heads = 2;
    shape.n_kv_heads = 1;
    shape.k_size = shape.v_size = 32;
    tale *t = tale_create(&shape), *u = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    must_tell(u, &piece);
    char to[160];
    session_copy_options options = copy_options(t, to);
    options.k_type = options.v_type = CELLAR_Q8_0;
    must_copy(t, &options);
    size_t size, size_converted;
    free(tale_read(t, "tale", &size));
    free(tale_read(t, "copy", &size_converted));
    assert_true(size_converted < size);
    piece.prompt = NULL;
    piece.type = CELLAR_Q8_0;
    piece.file = "copy";
    must_tell(t, &piece);
    piece.file = "tale";
    must_tell(u, &piece);
    assert_same_story(t, u);
    tale_destroy(t);
    tale_destroy(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_story_in_two_pieces_is_the_story),
        cmocka_unit_test(a_story_that_shifts_goes_on_as_if_it_were_never_closed),
        cmocka_unit_test(random_numbers_go_on_unless_a_seed_gives_others),
        cmocka_unit_test(a_story_that_was_stopped_is_told_to_its_end),
        cmocka_unit_test(saving_costs_what_was_added),
        cmocka_unit_test(a_prompt_that_is_there_already_adds_nothing),
        cmocka_unit_test(a_prompt_that_goes_further_adds_the_rest),
        cmocka_unit_test(another_prompt_is_added_whatever_it_says),
        cmocka_unit_test(a_prompt_that_replaces_gives_the_text_of_the_prompt_alone),
        cmocka_unit_test(what_has_shifted_is_not_taken_for_a_prompt),
        cmocka_unit_test(a_fork_at_a_token_is_a_story_that_begins_so),
        cmocka_unit_test(a_fork_is_refused_where_there_is_nothing),
        cmocka_unit_test(a_converted_session_is_what_loading_makes_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
