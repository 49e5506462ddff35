/*
 * unit_session_journal.c: saving again and again to one file.
 *
 * After whatever happened to a random memory (forks, rewinds, settling in place, compaction, resizing) the
 * file holds what the memory holds, by the second reader; and it loads: a memory that was loaded from
 * the journal is written whole as the same bytes. A failure changes nothing: neither the file nor what
 * later saves believe of it. What saving costs is asked in unit_session_journal_costs.c.
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
#include "support_folder.h"
#include "support_journal.h"
#include "support_parsed_session.h"
#include "support_story.h"

static uint64_t first_seed = 1;
static uint32_t n_memories = 20;

/* ---- random memories ------------------------------------------------------------------------------- */

static void whatever_happens_the_file_holds_it(void **state)
{
    (void)state;
    uint32_t n_appended = 0, n_whole = 0;
    for (uint32_t i = 0; i < n_memories; i++) {
        story s, copy;
        story_plan(&s, first_seed + i);
        print_message("seed %llu\n", (unsigned long long)s.seed);
        story_open(&s);
        cellar_journal *journal = journal_open(s.small.memory);
        for (uint32_t k = 0; k < 240; k++) {
            story_change(&s);
            if (!random_one_in(&s.random, 4)) continue;
            (void)journal_save(journal, NULL);
            bool is_journal = journal_expect_file(s.small.memory);
            n_appended += is_journal;
            n_whole += !is_journal;
            if (!random_one_in(&s.random, 6)) continue;
            cellar_close_journal(journal_load_copy(&s, &copy));
            journal_expect_same(s.small.memory, copy.small.memory);
            story_close(&copy);
        }
        cellar_close_journal(journal);
        story_close(&s);
        unlink(journal_path());
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
        print_message("seed %llu\n", (unsigned long long)stories[0].seed);
        story_open(&stories[0]);
        cellar_journal *journal = journal_open(stories[0].small.memory);
        for (uint32_t k = 0; k < 60; k++)
            story_change(&stories[0]);
        (void)journal_save(journal, NULL);
        for (uint32_t round = 0; round < 6; round++) {
            story *old = &stories[round % 2], *now = &stories[(round + 1) % 2];
            cellar_journal *next = journal_load_copy(old, now);
            journal_expect_same(old->small.memory, now->small.memory);
            cellar_close_journal(journal);
            story_close(old);
            journal = next;
            now->random = random_mix(first_seed + i, round);
            for (uint32_t k = 0; k < 3; k++)
                story_change(now);
            (void)journal_save(journal, NULL);
            n_appended += journal_expect_file(now->small.memory);
        }
        cellar_close_journal(journal);
        story_close(&stories[0]);
        unlink(journal_path());
    }
    if (n_memories > 1) assert_true(n_appended > n_memories);
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
        cellar_journal *journal = journal_open(s.small.memory);
        for (uint32_t k = 0; k < 40; k++)
            story_change(&s);
        (void)journal_save(journal, NULL);
        for (uint32_t round = 0; round < 4; round++) {
            for (uint32_t k = 0; k < 1 + 5 * round; k++)
                story_change(&s);
            parcel before = journal_read_file();
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
                parcel after = journal_read_file();
                parsed_read(&parsed, after.bytes, after.size);
                parsed_free(&parsed);
                /* but for the second commit record of a file that becomes a journal */
                assert_int_equal(after.size, before.size);
                assert_memory_equal(after.bytes + 256, before.bytes + 256, before.size - 256);
                parcel_free(&after);
            }
            (void)journal_expect_file(s.small.memory);
            parcel_free(&before);
        }
        cellar_close_journal(journal);
        story_close(&s);
        unlink(journal_path());
    }
}

static void a_load_that_fails_leaves_a_journal_that_saves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        story s, copy;
        story_plan(&s, first_seed + i);
        story_open(&s);
        cellar_journal *journal = journal_open(s.small.memory);
        for (uint32_t k = 0; k < 60; k++)
            story_change(&s);
        (void)journal_save(journal, NULL);
        story_plan(&copy, s.seed);
        copy.small.config.n_cells = 4096;
        copy.small.config.n_sequences = 64;
        copy.small.config.is_window_full = true;
        copy.small.config.checkpoint_bytes = 1 << 20;
        copy.small.config.allocator = faulty_allocator();
        story_open(&copy);
        cellar_journal *second = journal_open(copy.small.memory);
        cellar_load_options options = cellar_load_options_init();
        cellar_status status = CELLAR_NO_MEMORY;
        for (int n = 0; status != CELLAR_OK; n++) {
            faulty_allocations_left = n;
            status = cellar_load_journal(second, &options, NULL);
            faulty_allocations_left = -1;
            assert_true(status == CELLAR_OK || status == CELLAR_NO_MEMORY);
        }
        journal_expect_same(s.small.memory, copy.small.memory);
        (void)journal_save(second, NULL);
        (void)journal_expect_file(copy.small.memory);
        cellar_close_journal(second);
        story_close(&copy);
        cellar_close_journal(journal);
        story_close(&s);
        unlink(journal_path());
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whatever_happens_the_file_holds_it, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(what_was_resumed_is_appended_to, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(a_save_that_fails_changes_nothing, folder_set_up,
                                        folder_tear_down),
        cmocka_unit_test_setup_teardown(a_load_that_fails_leaves_a_journal_that_saves,
                                        folder_set_up, folder_tear_down),
    };
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 1) n_memories = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
