/*
 * unit_odd_session.c: sessions that `cellar run` must not go on with, and odd ones that it may.
 *
 * Of another model, too large, damaged, saved by somebody else, or saying of their text what cannot be:
 * each is refused by a reason that names it, and the file stays as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support_tale.h"

#define PROMPT "Once upon a time"

static void must_tell(tale *t, const tale_piece *piece)
{
    if (tale_tell(t, piece) != CELLAR_OK) {
        fail_msg("%s", t->error.message);
    }
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* The piece must fail so, and neither change the file nor leave another. */
static void assert_refused(tale *t, const tale_piece *piece, cellar_status status, const char *part)
{
    size_t before, after;
    unsigned char *was = tale_read(t, piece->file, &before);
    assert_int_equal(tale_tell(t, piece), status);
    if (strstr(t->error.message, part) == NULL) {
        fail_msg("'%s' does not say '%s'", t->error.message, part);
    }
    unsigned char *is = tale_read(t, piece->file, &after);
    assert_int_equal(before, after);
    assert_memory_equal(was, is, before);
    free(was);
    free(is);
}

static void copy_file(tale *to, tale *from)
{
    size_t size;
    unsigned char *bytes = tale_read(from, "tale", &size);
    tale_write(to, "tale", bytes, size);
    free(bytes);
}

static void another_model_is_refused_by_the_fact_that_differs(void **state)
{
    (void)state;
    const fixture_key key = {.key = "general.description", .kind = FIXTURE_TEXT, .text = "other"};
    const fixture_key name = {.key = "general.name", .kind = FIXTURE_TEXT, .text = "Ada"};
    struct {
        fixture_shape shape;
        const char *fact;
    } others[] = {{fixture_default(), "weights"},
                  {fixture_default(), "metadata"},
                  {fixture_default(), "name"}};
    others[0].shape.seed++;
    others[1].shape.keys = &key;
    others[2].shape.keys = &name;
    others[1].shape.n_keys = others[2].shape.n_keys = 1;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    for (size_t i = 0; i < 3; i++) {
        tale *other = tale_create(&others[i].shape);
        copy_file(other, t);
        assert_refused(other, &piece, CELLAR_MISMATCH, others[i].fact);
        tale_destroy(other);
    }
    must_tell(t, &piece); /* and its own model still takes it */
    tale_destroy(t);
}

static void a_memory_that_is_too_small_is_refused(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    piece.prompt = NULL;
    piece.n_cells = 16;
    assert_refused(t, &piece, CELLAR_FULL, "-c ");
    tale_destroy(t);
}

/* A prompt that cannot be read leaves the session as it was, not with the prompt in it. */
static void a_prompt_that_is_too_long_is_refused(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(PROMPT);
    must_tell(t, &piece);
    char text[260];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    piece.prompt = text;
    assert_refused(t, &piece, CELLAR_FULL, "-c ");
    piece.on_full = GENERATE_FAIL;
    assert_refused(t, &piece, CELLAR_FULL, "-c ");
    tale_destroy(t);
}

static void every_damaged_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default("ab");
    piece.n_limit = 2;
    must_tell(t, &piece);
    size_t size;
    unsigned char *bytes = tale_read(t, "tale", &size);
    piece.prompt = NULL;
    piece.n_limit = 1;
    unsigned n_refused = 0;
    for (size_t i = 0; i < size; i += i < 256 ? 8 : 53) {
        bytes[i] ^= 0x20;
        tale_write(t, "tale", bytes, size);
        const cellar_status status = tale_tell(t, &piece);
        n_refused += status != CELLAR_OK;
        bytes[i] ^= 0x20;
    }
    assert_true(n_refused > 20);
    for (size_t i = 0; i < size; i += 101) { /* every hundred-and-first beginning */
        tale_write(t, "tale", bytes, i);
        assert_refused(t, &piece, CELLAR_CORRUPT, "");
    }
    tale_write(t, "tale", bytes, size);
    must_tell(t, &piece);
    free(bytes);
    tale_destroy(t);
}

/* ---- sessions of others --------------------------------------------------------------------- */

/* A session with these notes and this log, of what the tale's model makes of n tokens. */
static void save_odd(tale *t, uint32_t n_sequences, const cellar_note *notes, uint32_t n_notes,
                     const cellar_token *log, uint32_t n_log)
{
    engine_options how = engine_defaults();
    how.n_cells = 64;
    engine *e;
    fingerprint facts;
    assert_int_equal(engine_create(t->model, &how, &e, &t->error), CELLAR_OK);
    fingerprint_make(t->model, &facts);
    const cellar_token tokens[4] = {1, 100, 101, 102};
    for (uint32_t i = 0; i < n_sequences; i++) {
        const cellar_seq seqs[4] = {(cellar_seq)i, (cellar_seq)i, (cellar_seq)i, (cellar_seq)i};
        cellar_batch batch = cellar_batch_init();
        batch.n_tokens = 4;
        batch.tokens = tokens;
        batch.seqs = seqs;
        assert_int_equal(engine_decode(e, &batch, NULL, 0, NULL, &t->error), CELLAR_OK);
    }
    const cellar_log logs = {.seq = 0, .n_tokens = n_log, .tokens = log};
    cellar_save_options options = cellar_save_options_init();
    options.facts = facts.facts;
    options.n_facts = FINGERPRINT_FACTS;
    options.notes = notes;
    options.n_notes = n_notes;
    options.logs = &logs;
    options.n_logs = log != NULL;
    const char *path = tale_path(t, "tale");
    if (cellar_save_session(engine_memory(e), &options, path, &t->error) != CELLAR_OK) {
        fail_msg("%s", t->error.message);
    }
    engine_destroy(e);
}

static void what_a_session_says_of_its_text_is_not_believed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         "0",        "0+",   "0+3",  "0+5",     "1+3",           "0+2 2+2",
        "0+2  4+2", "0+0",      " 0+4", "0+4 ", "0+4 5+1", "0+99999999999", "2+2 0+2",
        "-1+5",     "0+2 3+2x", "0 4",  "a+b",  "0+4\n1",  "4294967296+4"};
    const cellar_token log[6] = {1, 100, 101, 102, 103, 104};
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const cellar_note note = {CONVERSATION_NOTE, bad[i], strlen(bad[i])};
        save_odd(t, 1, &note, 1, log, 6);
        assert_refused(t, &piece, CELLAR_CORRUPT, "");
    }
    const cellar_note good = {CONVERSATION_NOTE, "0+2 3+2", 7};
    save_odd(t, 1, &good, 1, log, 6);
    must_tell(t, &piece);
    tale_destroy(t);
}

static void tokens_that_are_none_and_other_kinds_of_sessions_are_refused(void **state)
{
    (void)state;
    const cellar_token large[4] = {1, 100, 101, FIXTURE_VOCABULARY}, negative[4] = {1, -5, 100, 2};
    const cellar_token good[4] = {1, 100, 101, 102};
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    const tale_piece piece = tale_piece_default(NULL);
    save_odd(t, 1, NULL, 0, large, 4);
    assert_refused(t, &piece, CELLAR_CORRUPT, "token 3");
    save_odd(t, 1, NULL, 0, good, 3);
    assert_refused(t, &piece, CELLAR_CORRUPT, "log of 3 tokens");
    save_odd(t, 1, NULL, 0, NULL, 0);
    assert_refused(t, &piece, CELLAR_UNSUPPORTED, "which tokens");
    save_odd(t, 2, NULL, 0, good, 4);
    assert_refused(t, &piece, CELLAR_UNSUPPORTED, "2 sequences");
    save_odd(t, 1, NULL, 0, negative, 4);
    assert_refused(t, &piece, CELLAR_CORRUPT, "token 1");
    save_odd(t, 1, NULL, 0, good, 4); /* without notes it begins at its beginning */
    must_tell(t, &piece);
    tale_destroy(t);
}

/* What cannot be a generator is none: the numbers are those of the seed. */
static void a_generator_that_is_none_is_not_gone_on_with(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "seed 7 words 0 0 0 0", "seed 7 words 1 2 3", "seed x words 1 2 3 4", "",
        "seed "
        "99999999999999999999999999999999999999999999999999999999999999999999999999999999999999"
        "9999999999999999999999999999999999999999999 words 1 2 3 4"};
    const cellar_token log[4] = {1, 100, 101, 102};
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape), *u = tale_create(&shape);
    const tale_piece piece = tale_piece_default(NULL);
    save_odd(u, 1, NULL, 0, log, 4);
    must_tell(u, &piece);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const cellar_note note = {RUN_SESSION_GENERATOR, bad[i], strlen(bad[i])};
        save_odd(t, 1, &note, 1, log, 4);
        must_tell(t, &piece);
        assert_int_equal(t->n_tokens, u->n_tokens);
        assert_memory_equal(t->tokens, u->tokens, u->n_tokens * sizeof *u->tokens);
    }
    tale_destroy(t);
    tale_destroy(u);
}

static bool has_note(tale *t, const char *name, const char *value)
{
    cellar_session *session;
    cellar_note note;
    assert_int_equal(cellar_open_session(tale_path(t, "tale"), NULL, &session, NULL), CELLAR_OK);
    const bool is_there = conversation_find_note(session, name, &note) &&
                          note.size == strlen(value) &&
                          (note.size == 0 || memcmp(note.value, value, note.size) == 0);
    cellar_close_session(session);
    return is_there;
}

static void notes_of_others_and_the_title_are_kept(void **state)
{
    (void)state;
    const cellar_token log[4] = {1, 100, 101, 102};
    const cellar_note notes[] = {{"colour", "blue", 4}, {"title", "A house", 7}, {"empty", "", 0}};
    const fixture_shape shape = fixture_default();
    tale *t = tale_create(&shape);
    tale_piece piece = tale_piece_default(NULL);
    save_odd(t, 1, notes, 3, log, 4);
    must_tell(t, &piece);
    must_tell(t, &piece);
    assert_true(has_note(t, "colour", "blue"));
    assert_true(has_note(t, "empty", ""));
    assert_true(has_note(t, "title", "A house"));
    piece.title = "A tree";
    must_tell(t, &piece);
    assert_true(has_note(t, "title", "A tree"));
    tale_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_model_is_refused_by_the_fact_that_differs),
        cmocka_unit_test(a_memory_that_is_too_small_is_refused),
        cmocka_unit_test(a_prompt_that_is_too_long_is_refused),
        cmocka_unit_test(every_damaged_byte_is_refused_or_harmless),
        cmocka_unit_test(what_a_session_says_of_its_text_is_not_believed),
        cmocka_unit_test(tokens_that_are_none_and_other_kinds_of_sessions_are_refused),
        cmocka_unit_test(a_generator_that_is_none_is_not_gone_on_with),
        cmocka_unit_test(notes_of_others_and_the_title_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
