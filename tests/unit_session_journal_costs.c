/*
 * unit_session_journal_costs.c: what is written when a session is saved again.
 *
 * One token more costs about that token, a fork next to nothing, the end of a log that end. When half is no
 * longer needed, when somebody else has put another file there, when rows were converted on the way into
 * the memory, the whole is written. Each time the file holds what the memory holds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support_folder.h"
#include "support_journal.h"
#include "support_parsed_compare.h"
#include "support_parsed_session.h"
#include "support_story.h"

/* ---- what it costs ----------------------------------------------------------------------------------- */

/* Full attention of f16 and a window: 128 bytes a token each; states: 160 bytes. */
static void open_plain(story *s, uint32_t kinds)
{
    *s = (story){.random = 1};
    small_init(&s->small, 4096);
    if (kinds & 1) (void)small_add_attention(&s->small, 0);
    if (kinds & 2) (void)small_add_attention(&s->small, 64);
    if (kinds & 4) (void)small_add_recurrent(&s->small);
    s->small.config.n_sequences = 4;
    story_open(s);
}

static void read_many(story *s, cellar_seq seq, uint32_t n)
{
    for (; n > 0; n -= n < STORY_BATCH ? n : STORY_BATCH)
        assert_int_equal(story_read(s, seq, n < STORY_BATCH ? n : STORY_BATCH), CELLAR_OK);
}

static void one_more_token_costs_about_that_token(void **state)
{
    (void)state;
    for (uint32_t kinds = 1; kinds < 8; kinds++) {
        story s;
        open_plain(&s, kinds);
        cellar_journal *journal = journal_open(s.small.memory);
        read_many(&s, 7, 1000);
        uint64_t whole = journal_save(journal, NULL);
        if (kinds & 1) assert_true(whole > 128000);
        read_many(&s, 7, 1);
        uint64_t more = journal_save(journal, NULL);
        /* a window's cells may have been given up: the others of their block are written again */
        uint64_t most = 2048 + (kinds & 2 ? 2 * 32 * 140 : 0);
        if (more > most)
            fail_msg("kinds %u: %llu bytes for a token", kinds, (unsigned long long)more);
        if (kinds & 1) assert_true(journal_expect_file(s.small.memory));
        cellar_close_journal(journal);
        story_close(&s);
        unlink(journal_path());
    }
}

static void nothing_new_costs_lists_and_index(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 7);
    cellar_journal *journal = journal_open(s.small.memory);
    read_many(&s, 7, 1000);
    (void)journal_save(journal, NULL);
    assert_int_equal(cellar_copy(s.small.memory, 7, 8, 0, -1, NULL), CELLAR_OK);
    assert_true(journal_save(journal, NULL) < 1024);
    assert_true(journal_expect_file(s.small.memory));
    cellar_pos from;
    assert_int_equal(cellar_remove(s.small.memory, 8, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(cellar_rewind(s.small.memory, 7, 1000, &from, NULL), CELLAR_OK);
    assert_true(journal_save(journal, NULL) < 1024);
    assert_true(journal_expect_file(s.small.memory));
    cellar_close_journal(journal);
    story_close(&s);
    unlink(journal_path());
}

static void half_dead_is_saved_whole(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    cellar_journal *journal = journal_open(s.small.memory);
    read_many(&s, 1, 1000);
    read_many(&s, 2, 900);
    uint64_t whole = journal_save(journal, NULL);
    assert_int_equal(cellar_remove(s.small.memory, 2, 0, -1, NULL), CELLAR_OK);
    assert_true(journal_save(journal, NULL) < 1024); /* less than half is dead */
    assert_true(journal_expect_file(s.small.memory));
    assert_int_equal(cellar_remove(s.small.memory, 1, 900, -1, NULL), CELLAR_OK);
    uint64_t n = journal_save(journal, NULL);
    assert_true(n > 900 * 128 && n < whole / 2 + 8192);
    assert_false(journal_expect_file(s.small.memory));
    cellar_close_journal(journal);
    story_close(&s);
    unlink(journal_path());
}

/* Cells that go and come back are other cells. */
static void cells_that_come_back_are_new(void **state)
{
    (void)state;
    story s = {.random = 1};
    small_init(&s.small, 64);
    (void)small_add_attention(&s.small, 0);
    story_open(&s);
    cellar_memory *memory = s.small.memory;
    cellar_journal *journal = journal_open(memory);
    read_many(&s, 1, 64);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cellar_resize(memory, 0, 128, NULL), CELLAR_OK);
        read_many(&s, 2, 60);
        (void)journal_save(journal, NULL);
        (void)journal_expect_file(memory);
        assert_int_equal(cellar_remove(memory, 2, 0, -1, NULL), CELLAR_OK);
        assert_int_equal(cellar_resize(memory, 0, 64, NULL), CELLAR_OK);
        if (i == 1) (void)journal_save(journal, NULL);
    }
    cellar_close_journal(journal);
    story_close(&s);
    unlink(journal_path());
}

/* ---- notes, facts and logs ------------------------------------------------------------------------------ */

static void notes_facts_and_logs_follow(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    read_many(&s, 3, 600);
    read_many(&s, 9, 12);
    cellar_journal *journal = journal_open(s.small.memory);
    cellar_token tokens[2000];
    for (int i = 0; i < 2000; i++)
        tokens[i] = 3 * i;
    cellar_note fact = {"architecture", "a", 1}, note = {"title", "one", 3};
    cellar_log logs[2] = {{3, 600, tokens}, {9, 12, tokens}};
    cellar_save_options options = cellar_save_options_init();
    options.facts = &fact;
    options.n_facts = 1;
    options.notes = &note;
    options.n_notes = 1;
    options.logs = logs;
    options.n_logs = 2;
    (void)journal_save(journal, &options);
    static const struct {
        const char *title;
        uint32_t n_3, n_9, most;
        int32_t change; /* added to the log's third token */
    } steps[] = {
        {"one", 700, 12, 1400, 0},  /* its end alone */
        {"two", 700, 12, 1100, 0},  /* the note */
        {"two", 700, 12, 4200, 1},  /* the log is another one */
        {"two", 300, 12, 2600, 1},  /* shorter */
        {"two", 300, 0, 1100, 1},   /* none */
        {"two", 300, 1500, 7500, 1} /* one again */
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        note.value = steps[i].title;
        logs[0].n_tokens = steps[i].n_3;
        logs[1].n_tokens = steps[i].n_9;
        tokens[2] = 6 + steps[i].change;
        /* a sequence with a smaller name comes and goes: places change */
        if (i % 2 == 0)
            read_many(&s, 0, 1);
        else
            assert_int_equal(cellar_remove(s.small.memory, 0, 0, -1, NULL), CELLAR_OK);
        uint64_t n = journal_save(journal, &options);
        if (n > steps[i].most) fail_msg("step %zu: %llu bytes", i, (unsigned long long)n);
        parcel file = journal_read_file();
        parsed_session parsed;
        parsed_read(&parsed, file.bytes, file.size);
        parsed_compare(s.small.memory, &parsed, false);
        assert_true(parsed.is_journal);
        assert_int_equal(parsed.n_facts, 1);
        assert_memory_equal(parsed.notes[0].value, steps[i].title, 3);
        for (uint32_t q = 0; q < parsed.n_sequences; q++) {
            const parsed_sequence *its = &parsed.sequences[q];
            uint32_t wanted = its->name == 3 ? steps[i].n_3 : its->name == 9 ? steps[i].n_9 : 0;
            assert_int_equal(its->n_tokens, wanted);
            if (wanted > 0) assert_memory_equal(its->tokens, tokens, wanted * sizeof *tokens);
        }
        parsed_free(&parsed);
        parcel_free(&file);
    }
    cellar_close_journal(journal);
    story_close(&s);
    unlink(journal_path());
}

/* ---- other files, other types ---------------------------------------------------------------------------- */

static void a_file_of_somebody_else_is_replaced(void **state)
{
    (void)state;
    story s, other;
    open_plain(&s, 3);
    open_plain(&other, 3);
    read_many(&s, 1, 200);
    read_many(&other, 1, 200);
    cellar_journal *journal = journal_open(s.small.memory);
    cellar_save_options options = cellar_save_options_init();
    cellar_error error = {0};
    (void)journal_save(journal, NULL);
    for (int i = 0; i < 3; i++) {
        if (i == 0) unlink(journal_path());
        if (i == 1)
            journal_must(cellar_save_session(other.small.memory, &options, journal_path(), &error),
                         &error);
        if (i == 2) { /* two journals of one file */
            cellar_journal *second = journal_open(other.small.memory);
            (void)journal_save(second, NULL);
            read_many(&other, 1, 1);
            (void)journal_save(second, NULL);
            cellar_close_journal(second);
        }
        read_many(&s, 1, 1);
        (void)journal_save(journal, NULL);
        assert_false(journal_expect_file(s.small.memory));
        read_many(&s, 1, 1);
        (void)journal_save(journal, NULL);
        assert_true(journal_expect_file(s.small.memory));
    }
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(journal_path());
}

static void converted_rows_are_saved_whole(void **state)
{
    (void)state;
    story s, other;
    open_plain(&s, 1);
    read_many(&s, 1, 200);
    cellar_journal *journal = journal_open(s.small.memory);
    (void)journal_save(journal, NULL);
    cellar_close_journal(journal);
    other = (story){.random = 1};
    small_init(&other.small, 4096);
    small_add_attention(&other.small, 0)->k_type = CELLAR_Q8_0;
    story_open(&other);
    journal = journal_open(other.small.memory);
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    journal_must(cellar_load_journal(journal, &options, &error), &error);
    assert_true(journal_save(journal, NULL) > 200 * 98);
    assert_false(journal_expect_file(other.small.memory));
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(journal_path());
}

/* Loaded under other names, of which one stays behind. */
static void new_names_keep_what_the_file_has(void **state)
{
    (void)state;
    story s, other;
    open_plain(&s, 1);
    read_many(&s, 1, 300);
    read_many(&s, 2, 100);
    cellar_token tokens[400] = {5, 6, 7};
    cellar_log logs[2] = {{1, 300, tokens}, {2, 100, tokens}};
    cellar_save_options options = cellar_save_options_init();
    options.logs = logs;
    options.n_logs = 2;
    cellar_journal *journal = journal_open(s.small.memory);
    (void)journal_save(journal, &options);
    cellar_close_journal(journal);
    open_plain(&other, 1);
    journal = journal_open(other.small.memory);
    cellar_load_options load = cellar_load_options_init();
    cellar_error error = {0};
    load.sequences = (cellar_seq[]){1};
    load.as = (cellar_seq[]){40};
    load.n_sequences = 1;
    journal_must(cellar_load_journal(journal, &load, &error), &error);
    cellar_log log = {40, 301, tokens};
    options.logs = &log;
    options.n_logs = 1;
    read_many(&other, 40, 1);
    assert_true(journal_save(journal, &options) < 1500);
    assert_true(journal_expect_file(other.small.memory));
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(journal_path());
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    cellar_journal *journal = NULL;
    cellar_save_options options = cellar_save_options_init();
    cellar_load_options load = cellar_load_options_init();
    assert_int_equal(cellar_open_journal(NULL, journal_path(), &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, NULL, &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, "", &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, journal_path(), NULL, NULL),
                     CELLAR_INVALID);
    assert_int_equal(cellar_save_journal(NULL, &options, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_journal(NULL, &load, NULL), CELLAR_INVALID);
    cellar_close_journal(NULL);
    journal = journal_open(s.small.memory);
    assert_int_equal(cellar_save_journal(journal, NULL, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_journal(journal, &load, NULL), CELLAR_NOT_FOUND);
    (void)journal_save(journal, NULL);
    assert_int_equal(cellar_load_journal(journal, NULL, NULL), CELLAR_INVALID);
    small_begin(&s.small, 1, 3);
    assert_int_equal(cellar_save_journal(journal, &options, NULL, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_load_journal(journal, &load, NULL), CELLAR_BUSY);
    cellar_abort(s.small.memory);
    cellar_close_journal(journal);
    story_close(&s);
    unlink(journal_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_more_token_costs_about_that_token, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(nothing_new_costs_lists_and_index, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(half_dead_is_saved_whole, folder_set_up, folder_tear_down),
        cmocka_unit_test_setup_teardown(cells_that_come_back_are_new, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(notes_facts_and_logs_follow, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(a_file_of_somebody_else_is_replaced, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(converted_rows_are_saved_whole, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(new_names_keep_what_the_file_has, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(wrong_arguments_are_refused, folder_set_up,
                                        folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
