/*
 * unit_session_journal.c: saving again and again to one file.
 *
 * After whatever happened to a random memory (forks, rewinds, settling in place, compaction, resizing) the
 * file holds what the memory holds, by the second reader; and it loads: a memory that was loaded from
 * the journal is written whole as the same bytes. Saving after one token costs about that token. A
 * failure changes nothing: neither the file nor what later saves believe of it.
 *
 *   unit_session_journal SEED [N]     N memories from that seed on
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/random.h"
#include "support_faulty.h"
#include "support_parsed_compare.h"
#include "support_session.h"
#include "support_story.h"

static uint64_t first_seed = 1;
static uint32_t n_memories = 40;
static char folder[64], path[96], other_path[96];

/* ---- files ------------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/unit_session_journal.%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(other_path, sizeof other_path, "%s/b", folder);
    char command[128];
    snprintf(command, sizeof command, "mkdir -p %s", folder);
    return system(command);
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(other_path);
    return rmdir(folder);
}

static parcel read_file(const char *name)
{
    parcel p = {NULL, 0, 0};
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    p.size = p.capacity = (size_t)ftell(file);
    rewind(file);
    p.bytes = malloc(p.size + 1);
    assert_non_null(p.bytes);
    assert_int_equal(fread(p.bytes, 1, p.size, file), p.size);
    fclose(file);
    return p;
}

/* The file holds what the memory holds. Returns whether it is a journal. */
static bool expect_file(const cellar_memory *memory, const char *name)
{
    parcel file = read_file(name);
    parsed_session parsed;
    parsed_read(&parsed, file.bytes, file.size);
    parsed_compare(memory, &parsed, !parsed.is_journal);
    bool is_journal = parsed.is_journal;
    parsed_free(&parsed);
    parcel_free(&file);
    return is_journal;
}

/* ---- small helps ---------------------------------------------------------------------------------- */

static void must(cellar_status status, const cellar_error *error)
{
    if (status != CELLAR_OK) fail_msg("%s: %s", cellar_status_text(status), error->message);
}

static cellar_journal *open_journal(cellar_memory *memory)
{
    cellar_journal *journal = NULL;
    cellar_error error = {0};
    must(cellar_open_journal(memory, path, &journal, &error), &error);
    return journal;
}

static uint64_t save(cellar_journal *journal, const cellar_save_options *options)
{
    cellar_save_options all = cellar_save_options_init();
    cellar_error error = {0};
    uint64_t n = 0;
    must(cellar_save_journal(journal, options ? options : &all, &n, &error), &error);
    return n;
}

/* Both memories are written as the same bytes. */
static void expect_same(const cellar_memory *a, const cellar_memory *b)
{
    parcel x = {NULL, 0, 0}, y = {NULL, 0, 0};
    cellar_error error = {0};
    must(parcel_write(&x, a, NULL, &error), &error);
    must(parcel_write(&y, b, NULL, &error), &error);
    assert_true(parcel_equal(&x, &y));
    parcel_free(&x);
    parcel_free(&y);
}

/* A memory of the same layers with room for everything, loaded from the journal. */
static cellar_journal *load_copy(const story *s, story *copy)
{
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    story_plan(copy, s->seed);
    copy->small.config.n_cells = 4096;
    copy->small.config.is_window_full = true;
    copy->small.config.n_sequences = 64;
    copy->small.config.checkpoint_bytes = 1 << 20;
    story_open(copy);
    cellar_journal *journal = open_journal(copy->small.memory);
    must(cellar_load_journal(journal, &options, &error), &error);
    return journal;
}

/* ---- random memories ------------------------------------------------------------------------------- */

static void whatever_happens_the_file_holds_it(void **state)
{
    (void)state;
    uint32_t n_appended = 0, n_whole = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s, copy;
        story_plan(&s, first_seed + i);
        story_open(&s);
        cellar_journal *journal = open_journal(s.small.memory);
        for (uint32_t k = 0; k < 240; k++) {
            story_change(&s);
            if (!random_one_in(&s.random, 4)) continue;
            (void)save(journal, NULL);
            bool is_journal = expect_file(s.small.memory, path);
            n_appended += is_journal;
            n_whole += !is_journal;
            if (!random_one_in(&s.random, 6)) continue;
            cellar_close_journal(load_copy(&s, &copy));
            expect_same(s.small.memory, copy.small.memory);
            story_close(&copy);
        }
        cellar_close_journal(journal);
        story_close(&s);
        unlink(path);
    }
    print_message("%u saves were appended, %u whole\n", n_appended, n_whole);
    if (n_memories > 1) assert_true(n_appended > 100 && n_whole > 100);
}

/* A conversation that is resumed, goes on and is saved: by appending, and by whoever resumes it next. */
static void what_was_resumed_is_appended_to(void **state)
{
    (void)state;
    uint32_t n_appended = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story stories[2];
        story_plan(&stories[0], first_seed + i);
        story_open(&stories[0]);
        cellar_journal *journal = open_journal(stories[0].small.memory);
        for (uint32_t k = 0; k < 60; k++)
            story_change(&stories[0]);
        (void)save(journal, NULL);
        for (uint32_t round = 0; round < 6; round++) {
            story *old = &stories[round % 2], *now = &stories[(round + 1) % 2];
            cellar_journal *next = load_copy(old, now);
            expect_same(old->small.memory, now->small.memory);
            cellar_close_journal(journal);
            story_close(old);
            journal = next;
            now->random = random_mix(first_seed + i, round);
            for (uint32_t k = 0; k < 3; k++)
                story_change(now);
            (void)save(journal, NULL);
            n_appended += expect_file(now->small.memory, path);
        }
        cellar_close_journal(journal);
        story_close(&stories[0]);
        unlink(path);
    }
    if (n_memories > 1) assert_true(n_appended > n_memories);
}

/* ---- what it costs ----------------------------------------------------------------------------------- */

/* Full attention of f16, a window, states: 192 + 192 bytes a token, 160 a state. */
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
        cellar_journal *journal = open_journal(s.small.memory);
        read_many(&s, 7, 1000);
        uint64_t whole = save(journal, NULL);
        if (kinds & 1) assert_true(whole > 128000);
        read_many(&s, 7, 1);
        uint64_t more = save(journal, NULL);
        /* a window's cells may have been given up: the others of their block are written again */
        uint64_t most = 2048 + (kinds & 2 ? 2 * 32 * 140 : 0);
        if (more > most)
            fail_msg("kinds %u: %llu bytes for a token", kinds, (unsigned long long)more);
        if (kinds & 1) assert_true(expect_file(s.small.memory, path));
        cellar_close_journal(journal);
        story_close(&s);
        unlink(path);
    }
}

static void nothing_new_costs_lists_and_index(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 7);
    cellar_journal *journal = open_journal(s.small.memory);
    read_many(&s, 7, 1000);
    (void)save(journal, NULL);
    assert_int_equal(cellar_copy(s.small.memory, 7, 8, 0, -1, NULL), CELLAR_OK);
    assert_true(save(journal, NULL) < 1024);
    assert_true(expect_file(s.small.memory, path));
    cellar_pos from;
    assert_int_equal(cellar_remove(s.small.memory, 8, 0, -1, NULL), CELLAR_OK);
    assert_int_equal(cellar_rewind(s.small.memory, 7, 1000, &from, NULL), CELLAR_OK);
    assert_true(save(journal, NULL) < 1024);
    assert_true(expect_file(s.small.memory, path));
    cellar_close_journal(journal);
    story_close(&s);
    unlink(path);
}

static void half_dead_is_saved_whole(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    cellar_journal *journal = open_journal(s.small.memory);
    read_many(&s, 1, 1000);
    read_many(&s, 2, 900);
    uint64_t whole = save(journal, NULL);
    assert_int_equal(cellar_remove(s.small.memory, 2, 0, -1, NULL), CELLAR_OK);
    assert_true(save(journal, NULL) < 1024); /* less than half is dead */
    assert_true(expect_file(s.small.memory, path));
    assert_int_equal(cellar_remove(s.small.memory, 1, 900, -1, NULL), CELLAR_OK);
    uint64_t n = save(journal, NULL);
    assert_true(n > 900 * 128 && n < whole / 2 + 8192);
    assert_false(expect_file(s.small.memory, path));
    cellar_close_journal(journal);
    story_close(&s);
    unlink(path);
}

/* ---- notes, facts and logs ------------------------------------------------------------------------------ */

static void notes_facts_and_logs_follow(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    read_many(&s, 3, 600);
    read_many(&s, 9, 12);
    cellar_journal *journal = open_journal(s.small.memory);
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
    (void)save(journal, &options);
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
        uint64_t n = save(journal, &options);
        if (n > steps[i].most) fail_msg("step %zu: %llu bytes", i, (unsigned long long)n);
        parcel file = read_file(path);
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
    unlink(path);
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
    cellar_journal *journal = open_journal(s.small.memory);
    cellar_save_options options = cellar_save_options_init();
    cellar_error error = {0};
    (void)save(journal, NULL);
    for (int i = 0; i < 3; i++) {
        if (i == 0) unlink(path);
        if (i == 1) must(cellar_save_session(other.small.memory, &options, path, &error), &error);
        if (i == 2) { /* two journals of one file */
            cellar_journal *second = open_journal(other.small.memory);
            (void)save(second, NULL);
            read_many(&other, 1, 1);
            (void)save(second, NULL);
            cellar_close_journal(second);
        }
        read_many(&s, 1, 1);
        (void)save(journal, NULL);
        assert_false(expect_file(s.small.memory, path));
        read_many(&s, 1, 1);
        (void)save(journal, NULL);
        assert_true(expect_file(s.small.memory, path));
    }
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(path);
}

static void converted_rows_are_saved_whole(void **state)
{
    (void)state;
    story s, other;
    open_plain(&s, 1);
    read_many(&s, 1, 200);
    cellar_journal *journal = open_journal(s.small.memory);
    (void)save(journal, NULL);
    cellar_close_journal(journal);
    other = (story){.random = 1};
    small_init(&other.small, 4096);
    small_add_attention(&other.small, 0)->k_type = CELLAR_Q8_0;
    story_open(&other);
    journal = open_journal(other.small.memory);
    cellar_load_options options = cellar_load_options_init();
    cellar_error error = {0};
    must(cellar_load_journal(journal, &options, &error), &error);
    assert_true(save(journal, NULL) > 200 * 98);
    assert_false(expect_file(other.small.memory, path));
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(path);
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
    cellar_journal *journal = open_journal(s.small.memory);
    (void)save(journal, &options);
    cellar_close_journal(journal);
    open_plain(&other, 1);
    journal = open_journal(other.small.memory);
    cellar_load_options load = cellar_load_options_init();
    cellar_error error = {0};
    load.sequences = (cellar_seq[]){1};
    load.as = (cellar_seq[]){40};
    load.n_sequences = 1;
    must(cellar_load_journal(journal, &load, &error), &error);
    cellar_log log = {40, 301, tokens};
    options.logs = &log;
    options.n_logs = 1;
    read_many(&other, 40, 1);
    assert_true(save(journal, &options) < 1500);
    assert_true(expect_file(other.small.memory, path));
    cellar_close_journal(journal);
    story_close(&s);
    story_close(&other);
    unlink(path);
}

/* ---- failures ------------------------------------------------------------------------------------------------ */

/* Allocation n of a save fails, n = 0, 1, ...; the file stays, and the next save is right. */
static void a_save_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        story s;
        story_plan(&s, first_seed + i);
        s.small.config.allocator = faulty_allocator();
        story_open(&s);
        cellar_journal *journal = open_journal(s.small.memory);
        for (uint32_t k = 0; k < 40; k++)
            story_change(&s);
        (void)save(journal, NULL);
        for (uint32_t round = 0; round < 4; round++) {
            for (uint32_t k = 0; k < 1 + 5 * round; k++)
                story_change(&s);
            parcel before = read_file(path);
            cellar_save_options options = cellar_save_options_init();
            cellar_status status = CELLAR_NO_MEMORY;
            for (int n = 0; status != CELLAR_OK; n++) {
                cellar_error error = {0};
                faulty_allocations_left = n;
                status = cellar_save_journal(journal, &options, NULL, &error);
                faulty_allocations_left = -1;
                if (status == CELLAR_OK) break;
                assert_int_equal(status, CELLAR_NO_MEMORY);
                parsed_session parsed;
                parcel after = read_file(path);
                parsed_read(&parsed, after.bytes, after.size);
                parsed_free(&parsed);
                /* but for the second commit record of a file that becomes a journal */
                assert_int_equal(after.size, before.size);
                assert_memory_equal(after.bytes + 256, before.bytes + 256, before.size - 256);
                parcel_free(&after);
            }
            (void)expect_file(s.small.memory, path);
            parcel_free(&before);
        }
        cellar_close_journal(journal);
        story_close(&s);
        unlink(path);
    }
}

static void a_load_that_fails_leaves_a_journal_that_saves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        story s, copy;
        story_plan(&s, first_seed + i);
        story_open(&s);
        cellar_journal *journal = open_journal(s.small.memory);
        for (uint32_t k = 0; k < 60; k++)
            story_change(&s);
        (void)save(journal, NULL);
        story_plan(&copy, s.seed);
        copy.small.config.n_cells = 4096;
        copy.small.config.n_sequences = 64;
        copy.small.config.is_window_full = true;
        copy.small.config.checkpoint_bytes = 1 << 20;
        copy.small.config.allocator = faulty_allocator();
        story_open(&copy);
        cellar_journal *second = open_journal(copy.small.memory);
        cellar_load_options options = cellar_load_options_init();
        cellar_status status = CELLAR_NO_MEMORY;
        for (int n = 0; status != CELLAR_OK; n++) {
            faulty_allocations_left = n;
            status = cellar_load_journal(second, &options, NULL);
            faulty_allocations_left = -1;
            assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        }
        expect_same(s.small.memory, copy.small.memory);
        (void)save(second, NULL);
        (void)expect_file(copy.small.memory, path);
        cellar_close_journal(second);
        story_close(&copy);
        cellar_close_journal(journal);
        story_close(&s);
        unlink(path);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    story s;
    open_plain(&s, 1);
    cellar_journal *journal = NULL;
    cellar_save_options options = cellar_save_options_init();
    cellar_load_options load = cellar_load_options_init();
    assert_int_equal(cellar_open_journal(NULL, path, &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, NULL, &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, "", &journal, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_open_journal(s.small.memory, path, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_save_journal(NULL, &options, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_journal(NULL, &load, NULL), CELLAR_INVALID);
    cellar_close_journal(NULL);
    journal = open_journal(s.small.memory);
    assert_int_equal(cellar_save_journal(journal, NULL, NULL, NULL), CELLAR_INVALID);
    assert_int_equal(cellar_load_journal(journal, &load, NULL), CELLAR_NOT_FOUND);
    (void)save(journal, NULL);
    assert_int_equal(cellar_load_journal(journal, NULL, NULL), CELLAR_INVALID);
    small_begin(&s.small, 1, 3);
    assert_int_equal(cellar_save_journal(journal, &options, NULL, NULL), CELLAR_BUSY);
    assert_int_equal(cellar_load_journal(journal, &load, NULL), CELLAR_BUSY);
    cellar_abort(s.small.memory);
    cellar_close_journal(journal);
    story_close(&s);
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_the_file_holds_it),
        cmocka_unit_test(what_was_resumed_is_appended_to),
        cmocka_unit_test(one_more_token_costs_about_that_token),
        cmocka_unit_test(nothing_new_costs_lists_and_index),
        cmocka_unit_test(half_dead_is_saved_whole),
        cmocka_unit_test(notes_facts_and_logs_follow),
        cmocka_unit_test(a_file_of_somebody_else_is_replaced),
        cmocka_unit_test(converted_rows_are_saved_whole),
        cmocka_unit_test(new_names_keep_what_the_file_has),
        cmocka_unit_test(a_save_that_fails_changes_nothing),
        cmocka_unit_test(a_load_that_fails_leaves_a_journal_that_saves),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
